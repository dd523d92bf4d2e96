"""Metrics of the trainer: batch statistics, staleness, what groups can teach, and the last
evaluations.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rollcast.config.recipe import Recipe
from rollcast.recipe.group_signal import (
    GroupSignal,
    classify_group,
    signal_in_words,
    why_none_is_used,
)
from rollcast.rollouts.records import Purpose, RolloutGroup
from rollcast.runfolder.records import EvaluationRecord
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.metric import Metric
from rollcast.trainer.control.episode_credit import compared_reward
from rollcast.trainer.control.episode_statistics import statistics_of_episodes
from rollcast.trainer.control.pass_rate import truncated_matches, verdicts
from rollcast.trainer.learner.step_sums import UpdateStats

NUM_KEPT_EVALUATIONS = 16
"""Newest evaluations that stay on the metrics page, of each data set."""
_EVALUATION_METRICS: tuple[tuple[Metric, str], ...] = (
    (evaluation_metrics.EVAL_ENVIRONMENT_REWARD, "environment_reward"),
    (evaluation_metrics.EVAL_STANDARD_ERROR, "standard_error"),
    (evaluation_metrics.EVAL_STANDARD_ERROR_NEW_PROMPTS, "standard_error_new_prompts"),
    (evaluation_metrics.EVAL_COMPUTE, "compute_device_hours"),
    (evaluation_metrics.EVAL_TRAINED_TOKENS, "trained_tokens"),
    (evaluation_metrics.EVAL_SAMPLES, "samples"),
    (evaluation_metrics.EVAL_PROMPTS, "num_prompts"),
    (evaluation_metrics.EVAL_ASKED_PROMPTS, "asked_prompts"),
    (evaluation_metrics.EVAL_START_UP, "start_up_device_hours"),
    (evaluation_metrics.EVAL_DEVICES, "devices"),
    (evaluation_metrics.EVAL_TRUNCATION, "truncation_ratio"),
    (evaluation_metrics.EVAL_PASS_RATE, "pass_rate"),
)
"""The pass rate comes last: a scrape that sees it sees the others."""
log = get_logger()


def export_batch_statistics(exporter: Exporter, groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Statistics of a batch as it came, before any filter; exported and returned."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    rewards = verdicts(rollouts)
    statistics = {
        "reward_mean": sum(rewards) / max(1, len(rewards)),
        "truncation_ratio": sum(r.truncated for r in rollouts) / len(rollouts),
        "interrupted_ratio": sum(r.interrupted for r in rollouts) / len(rollouts),
        "completion_tokens_mean": sum(r.num_tokens for r in rollouts) / len(rollouts),
        "ungraded_ratio": 1.0 - len(rewards) / len(rollouts),
    }
    statistics |= statistics_of_episodes(
        [rollout.episode for rollout in rollouts if rollout.episode is not None]
    )
    exporter.set(trainer_metrics.REWARD_MEAN, statistics["reward_mean"])
    exporter.set(trainer_metrics.TRUNCATION_RATIO, statistics["truncation_ratio"])
    exporter.set(trainer_metrics.INTERRUPTED_RATIO, statistics["interrupted_ratio"])
    exporter.set(trainer_metrics.COMPLETION_TOKENS_MEAN, statistics["completion_tokens_mean"])
    matches = truncated_matches(rollouts)
    exporter.add(trainer_metrics.TRUNCATED_MATCHES, matches, purpose=Purpose.TRAIN)
    return statistics


def export_ratios(exporter: Exporter, stats: UpdateStats) -> None:
    """How far the policy that sampled the batch is from the trained one, and what the loss made of
    that.
    """
    for side, share in (("low", stats.ratios_clipped_low), ("high", stats.ratios_clipped_high)):
        if share is not None:
            exporter.set(trainer_metrics.RATIOS_CUT, share, side=side)
    exporter.set(trainer_metrics.RATIOS_MASKED, stats.ratios_masked)
    exporter.set(trainer_metrics.EFFECTIVE_SAMPLE_SHARE, stats.effective_sample_share)
    exporter.set(trainer_metrics.GENERATOR_KL, stats.generator_kl)


def count_staleness(groups: Sequence[RolloutGroup], step: int) -> Counter[int]:
    """Number of tokens by staleness: the trainer's step minus the token's."""
    counts: Counter[int] = Counter()
    for group in groups:
        for rollout in group.rollouts:
            for sequence in rollout.sequences:
                for span in sequence.version_spans:
                    counts[step - span.version.step] += span.end - span.start
    return counts


def export_lost_prompts(exporter: Exporter, evaluation: EvaluationRecord) -> None:
    """Count the prompts that the evaluation's pass rate lacks. Parts are counted in their whole."""
    if evaluation.dataset.startswith(
        (evaluation_metrics.PART_PREFIX, evaluation_metrics.ENVIRONMENT_PREFIX)
    ):
        return
    num_asked = evaluation.asked_prompts or 0
    num_graded = evaluation.num_prompts or 0
    num_missing = evaluation.missing_prompts or 0
    num_given_up = evaluation.given_up_prompts or 0
    lost = {
        "given_up": num_given_up,
        "deadline": num_missing - num_given_up,
        "no_verdict": num_asked - num_missing - num_graded,
    }
    for reason, count in lost.items():
        exporter.add(
            evaluation_metrics.EVAL_PROMPTS_LOST, count, dataset=evaluation.dataset, reason=reason
        )
    exporter.add(
        trainer_metrics.TRUNCATED_MATCHES, evaluation.truncated_matches or 0, purpose=Purpose.EVAL
    )


def _signal(group: RolloutGroup, recipe: Recipe) -> GroupSignal:
    rollouts = group.rollouts
    compared = [compared_reward(rollout, recipe) for rollout in rollouts]
    return classify_group(
        [sum(rewards) for rewards in compared],
        [rollout.truncated for rollout in rollouts],
        [rollout.has_verdict for rollout in rollouts],
        recipe,
        compared,
    )


def why_filtered(group: RolloutGroup, recipe: Recipe) -> str:
    """Why no rollout of a filtered group was trained on."""
    signal = _signal(group, recipe)
    if signal is GroupSignal.USABLE and recipe.filter is not None:
        signal = GroupSignal.FILTERED
    return signal_in_words(signal)


@dataclass(eq=False)
class GroupSignals:
    """Counts what the training groups that come back can teach, and warns if none of the first ones
    is of use.
    """

    _recipe: Recipe
    _exporter: Exporter
    _is_wanted: Callable[[RolloutGroup], bool] = lambda _: True
    """Asks the recipe's own filter, if it has one, about a group that is usable otherwise."""
    _counts: Counter[str] = field(default_factory=Counter)
    _has_warned: bool = False

    def __post_init__(self) -> None:
        for signal in GroupSignal:  # a counter that begins at 1 would hide the first
            self._exporter.add(trainer_metrics.GROUP_SIGNALS, 0.0, signal=str(signal))

    def note(self, group: RolloutGroup) -> None:
        """Count a group that answers its task, once."""
        signal = _signal(group, self._recipe)
        if (
            signal is GroupSignal.USABLE
            and self._recipe.filter is not None
            and not self._is_wanted(group)
        ):
            signal = GroupSignal.FILTERED
        self._counts[str(signal)] += 1
        self._exporter.add(trainer_metrics.GROUP_SIGNALS, signal=str(signal))
        if not self._has_warned and (sentence := why_none_is_used(self._counts, self._recipe)):
            self._has_warned = True
            log.warning(sentence)


class EvaluationSeries:
    """The last 16 evaluations of every data set as gauges, each under its own labels."""

    def __init__(self, exporter: Exporter) -> None:
        self._exporter = exporter
        self._exported_labels: defaultdict[str, deque[dict[str, str]]] = defaultdict(deque)

    def show(self, evaluation: EvaluationRecord) -> None:
        """A value that is not known has no series."""
        labels = {
            "dataset": evaluation.dataset,
            "incarnation": str(evaluation.incarnation),
            "step": str(evaluation.step),
        }
        exported_labels = self._exported_labels[evaluation.dataset]
        if labels in exported_labels:
            exported_labels.remove(labels)
        exported_labels.append(labels)
        for metric, name in _EVALUATION_METRICS:
            if (value := getattr(evaluation, name)) is not None:
                self._exporter.set(metric, float(value), **labels)
        while len(exported_labels) > NUM_KEPT_EVALUATIONS:
            # Each evaluation has series of its own, which would pile up on the page.
            oldest = exported_labels.popleft()
            for metric, _ in _EVALUATION_METRICS:
                self._exporter.remove(metric, **oldest)
