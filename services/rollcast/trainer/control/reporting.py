"""The trainer's reports: metrics, and the records of the run folder
(`rollcast.runfolder.records`).
"""

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from rollcast.config.recipe import Recipe
from rollcast.recipe.staleness import LONGEST_GROUP_WARNING
from rollcast.rollouts.base import TrainerQueue
from rollcast.rollouts.records import EpisodeEnd, PromptTask, Purpose, RolloutGroup
from rollcast.runfolder import files
from rollcast.runfolder.event_log import note
from rollcast.runfolder.records import (
    EvaluationRecord,
    IncarnationRecord,
    StepRecord,
    TaskMark,
    TaskOutcome,
    as_json,
)
from rollcast.runfolder.samples import SamplesRecord
from rollcast.runfolder.survival import is_complete
from rollcast.runfolder.writing import append_line
from rollcast.telemetry import evaluation_metrics, trainer_metrics, wire_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.metric import Metric
from rollcast.trainer.control.environment_metrics import MetricMeans, export_means
from rollcast.trainer.control.intake import Intake
from rollcast.trainer.control.prompt_book import PromptBook
from rollcast.trainer.control.state import TrainerState
from rollcast.trainer.control.telemetry import (
    EvaluationSeries,
    count_staleness,
    export_batch_statistics,
    export_lost_prompts,
    export_ratios,
    why_filtered,
)
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.wire.version import PolicyVersion

log = get_logger()


@dataclass(eq=False)
class Reporter:
    """Exports, logs and writes records; decides nothing."""

    _state: TrainerState
    _exporter: Exporter
    _prompts: PromptBook
    _recipe: Recipe
    max_staleness: int
    max_bytes: int
    """Bytes of finished groups in Redis above which nothing is dispatched."""
    _exported_totals: dict[tuple[str, ...], float] = field(default_factory=dict)
    _warned_at: dict[str, float] = field(default_factory=dict)
    _staleness: dict[int, int] = field(default_factory=dict)
    _batch_statistics: dict[str, float] = field(default_factory=dict)
    _batch_environment_metrics: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._served_at = 0.0
        self._metric_means = MetricMeans()
        self._series = EvaluationSeries(self._exporter)

    def record_start(self) -> None:
        history = self._state.history
        step = self._state.progress.step
        record = IncarnationRecord(history.incarnation, step, time.time())
        append_line(self._state.folder / files.INCARNATIONS, as_json(record))
        note(self._state.folder, f"trainer {history.incarnation} starts at step {step}")
        set_gauge = self._exporter.set
        set_gauge(trainer_metrics.INCARNATION, history.incarnation)
        set_gauge(trainer_metrics.TRAINER_STEP, step)
        if history.incarnation > 1:  # without a version the one before died without a checkpoint
            version = "{}.{}".format(*history.earlier[-1]) if history.earlier else None
            self.mark(TaskMark("resumed", version=version, incarnation=history.incarnation))
        set_gauge(trainer_metrics.MAX_STALENESS, self.max_staleness)
        set_gauge(wire_metrics.QUEUE_MAX_BYTES, self.max_bytes)
        # An incarnation begins at the last surviving step of the one before.
        for (_, last), (number, _) in pairwise(history.earlier):
            set_gauge(trainer_metrics.INCARNATION_START, last, incarnation=str(number))
        set_gauge(trainer_metrics.INCARNATION_START, step, incarnation=str(history.incarnation))
        budget = self._state.budget
        if budget.steps is not None:
            set_gauge(trainer_metrics.BUDGET_STEPS, budget.steps)
        if budget.device_hours is not None:
            set_gauge(trainer_metrics.BUDGET_DEVICE_HOURS, budget.device_hours)

    def count_dispatched(self, tasks: Sequence[PromptTask]) -> None:
        if not tasks:
            return
        self._exporter.add(trainer_metrics.GROUPS_DISPATCHED, len(tasks))
        for task in tasks:
            self._count_by_bias("dispatched", task.prompt_id)
        self.mark(TaskMark("dispatched", tasks=[task.sequence for task in tasks]))

    def mark(self, mark: TaskMark) -> None:
        """Write it to tasks.jsonl with the present time."""
        append_line(self._state.folder / files.TASKS, as_json(replace(mark, at=time.time())))

    def record_group_outcome(self, outcome: TaskOutcome, group: RolloutGroup) -> None:
        """One group used or filtered, with the tokens of its longest rollout, in which a bias by
        length would show.
        """
        self._exporter.add(trainer_metrics.CONSUMED_TOKENS, group.num_tokens)
        episodes = [rollout.episode for rollout in group.rollouts if rollout.episode]
        failed_episodes = [episode for episode in episodes if episode.end is EpisodeEnd.FAILED]
        mark = TaskMark(
            outcome,
            tasks=[group.sequence],
            longest=max(rollout.num_tokens for rollout in group.rollouts),
            episodes=dict(Counter(str(episode.end) for episode in episodes)),
            # A longer sentence about a failed environment is cut in tasks.jsonl
            failures=dict(Counter(episode.reason[:300] for episode in failed_episodes)),
            reason=why_filtered(group, self._recipe) if outcome == "filtered" else None,
        )
        self._count_outcome(mark, group.prompt_id)

    def count_group(
        self, outcome: TaskOutcome, sequence: int, prompt_id: str, reason: str | None
    ) -> None:
        """One group settled or redone; by length and past pass rate too, so that a bias could be
        seen.
        """
        # A reason may quote text that another program wrote to Redis
        mark = TaskMark(outcome, tasks=[sequence], reason=reason and reason[:300])
        self._count_outcome(mark, prompt_id)

    def _count_outcome(self, mark: TaskMark, prompt_id: str) -> None:
        self._exporter.add(trainer_metrics.GROUPS, outcome=mark.what)
        self.mark(mark)
        self._count_by_bias(mark.what, prompt_id)

    def _count_by_bias(self, outcome: str, prompt_id: str) -> None:
        decile = str(self._prompts.length_decile(prompt_id))
        self._exporter.add(trainer_metrics.GROUPS_BY_DECILE, outcome=outcome, decile=decile)
        pass_rate = self._state.curriculum.pass_rate(prompt_id)
        # Groups are counted by the quarter of the past pass rate of their prompt.
        quarter = "new" if pass_rate is None else str(min(3, int(pass_rate * 4)))
        self._exporter.add(trainer_metrics.GROUPS_BY_PASS_RATE, outcome=outcome, quarter=quarter)

    def batch(
        self, groups: Sequence[RolloutGroup], replaced_groups: Sequence[RolloutGroup]
    ) -> None:
        """The batch before any filter, and the groups that were filtered on arrival and replaced by
        these.

        That it holds no token older than k is our own invariant.
        """
        step = self._state.progress.step
        counts = count_staleness(groups, step)
        assert max(counts, default=0) <= self.max_staleness, (
            f"a token is {max(counts)} steps old at step {step}, k is {self.max_staleness}"
        )
        for steps, tokens in counts.items():
            self._exporter.observe(trainer_metrics.STALENESS, steps, count=tokens)
        self._staleness = dict(counts)
        received_groups = [*replaced_groups, *groups]
        self._batch_statistics = export_batch_statistics(self._exporter, received_groups)
        self._batch_environment_metrics = self._metric_means.mean(received_groups)
        export_means(self._exporter, self._batch_environment_metrics)
        # Above this share of truncated rollouts a run typically becomes unstable (paper A.15)
        if (ratio := self._batch_statistics["truncation_ratio"]) > 0.10:
            self._warn(
                "more than a tenth of the rollouts is truncated; such runs typically destabilise",
                ratio=round(ratio, 3),
            )

    @property
    def truncation_ratio(self) -> float | None:
        """The newest batch's; None before the first."""
        return self._batch_statistics.get("truncation_ratio")

    def note_replaced_groups(self, count: int) -> None:
        """`count` groups were filtered on arrival since the last batch; others take their place."""
        # Groups filtered and replaced before one batch, in batches, above which the log warns
        if count > 10 * self._recipe.prompts_per_step:
            self._warn(
                "recipe.refill_filtered: prompt after prompt is all right or all wrong",
                filtered=count,
            )

    def step(self, stats: UpdateStats, longest_ratio: float) -> None:
        """Export, record and log one optimizer step."""
        self._export_step(stats, longest_ratio)
        if longest_ratio > LONGEST_GROUP_WARNING:
            self._warn(
                "the longest groups nearly outlast the staleness window",
                ratio=round(longest_ratio, 2),
            )
        step = self._state.progress.step
        append_line(self._state.folder / files.STEPS, as_json(self._make_step_record(stats)))
        self.mark(TaskMark("step", step=step))
        reward = self._batch_statistics.get("reward_mean", 0.0)
        log.info("step", step=step, reward=round(reward, 3))

    def _export_step(self, stats: UpdateStats, longest_ratio: float) -> None:
        progress = self._state.progress
        set_gauge = self._exporter.set
        set_gauge(trainer_metrics.TRAINER_STEP, progress.step)
        set_gauge(trainer_metrics.LOSS, stats.loss)
        set_gauge(trainer_metrics.GRAD_NORM, stats.grad_norm)
        set_gauge(trainer_metrics.ENTROPY, stats.entropy)
        set_gauge(trainer_metrics.LEARNING_RATE, stats.learning_rate)
        if stats.kl is not None:
            set_gauge(trainer_metrics.REFERENCE_KL, stats.kl)
        if stats.teacher_kl is not None:
            set_gauge(trainer_metrics.TEACHER_KL, stats.teacher_kl)
        set_gauge(trainer_metrics.LOGPROB_GAP, stats.logprob_gap_mean, statistic="mean")
        set_gauge(trainer_metrics.LOGPROB_GAP, stats.logprob_gap_max, statistic="max")
        export_ratios(self._exporter, stats)
        set_gauge(trainer_metrics.LONGEST_GROUP_RATIO, longest_ratio)
        set_gauge(trainer_metrics.UNIQUE_PROMPTS, len(progress.uses))
        set_gauge(trainer_metrics.PROMPT_USES, self._mean_prompt_uses)
        set_gauge(trainer_metrics.PROMPTS_RETIRED, self._state.curriculum.num_removed)
        self._exporter.add(trainer_metrics.TOKENS, stats.tokens, role="trainer")
        self._exporter.add(trainer_metrics.CLAMPED_RATIOS, stats.clamped_ratios)
        self._exporter.observe(trainer_metrics.STEP_SECONDS, stats.seconds)

    def _make_step_record(self, stats: UpdateStats) -> StepRecord:
        """The line of steps.jsonl."""
        progress = self._state.progress
        return StepRecord(
            step=progress.step,
            at=time.time(),
            loss=stats.loss,
            grad_norm=stats.grad_norm,
            learning_rate=stats.learning_rate,
            entropy=stats.entropy,
            reference_kl=stats.kl,
            teacher_kl=stats.teacher_kl,
            unique_prompts=len(progress.uses),
            prompt_uses_mean=self._mean_prompt_uses,
            logprob_gap_mean=stats.logprob_gap_mean,
            logprob_gap_max=stats.logprob_gap_max,
            clamped_ratios=stats.clamped_ratios,
            ratios_cut_low=stats.ratios_clipped_low,
            ratios_cut_high=stats.ratios_clipped_high,
            ratios_masked=stats.ratios_masked,
            effective_sample_share=stats.effective_sample_share,
            generator_kl=stats.generator_kl,
            trained_tokens=stats.tokens,
            update_seconds=stats.seconds,
            staleness_tokens=dict(sorted(self._staleness.items())),
            environment_metrics=self._batch_environment_metrics,
            **self._batch_statistics,
        )

    @property
    def _mean_prompt_uses(self) -> float:
        uses = self._state.progress.uses
        return sum(uses.values()) / max(1, len(uses))

    def _warn(self, sentence: str, **details: object) -> None:
        """The metric is updated every step; the log warns once a minute at most."""
        now_seconds = time.monotonic()
        # Between two warnings about the same thing
        if now_seconds - self._warned_at.get(sentence, -math.inf) >= 60.0:
            self._warned_at[sentence] = now_seconds
            log.warning(sentence, **details)

    def update_skipped(self) -> None:
        """The gradient was not finite: the weights stay, the batch counts as filtered."""
        self._exporter.add(trainer_metrics.UPDATES_SKIPPED)
        log.error("the gradient is not finite; this batch makes no update")

    def no_generator(self) -> None:
        self._warn("no generator has joined; training waits for one")

    def evaluation_lost(self, dataset: str, step: int) -> None:
        self._exporter.add(evaluation_metrics.EVAL_LOST, dataset=dataset)
        log.error(
            "an evaluation has no verdict; its curve has no point there", dataset=dataset, step=step
        )

    def back_pressure(self, queued_bytes: int) -> None:
        self._warn(
            "redis.max_bytes holds dispatch back",
            queued_bytes=queued_bytes,
            max_bytes=self.max_bytes,
        )

    def record_wait(self, seconds: float, reason: str) -> None:
        self._exporter.add(trainer_metrics.TRAINER_WAIT, seconds, **{"for": reason})

    def evaluation(self, evaluation: EvaluationRecord) -> None:
        self._series.show(evaluation)
        export_lost_prompts(self._exporter, evaluation)
        append_line(self._state.folder / files.EVALUATIONS, as_json(evaluation))
        log.info(
            "evaluation",
            dataset=evaluation.dataset,
            step=evaluation.step,
            pass_rate=round(evaluation.pass_rate, 4),
            standard_error=round(evaluation.standard_error or 0.0, 4),
            device_hours=round(evaluation.compute_device_hours, 5),
        )
        if not is_complete(evaluation.graded_share):
            log.error(
                "an evaluation is incomplete: the forecast leaves this point out",
                dataset=evaluation.dataset,
                step=evaluation.step,
                prompts=evaluation.num_prompts,
                asked=evaluation.asked_prompts,
                given_up=evaluation.given_up_prompts,
            )

    def samples(self, record: SamplesRecord) -> None:
        append_line(self._state.folder / files.SAMPLES, as_json(record))

    def stopped_early(self, step: int, reason: str) -> None:
        self.mark(TaskMark("stopped_early", step=step, reason=reason))
        log.warning("stop_when ends the run before its budget", step=step, reason=reason)

    def checkpoint_begun(self, version: PolicyVersion) -> None:
        """Groups settled before this line are in the checkpoint, later ones are not."""
        self.mark(TaskMark("checkpoint", version=str(version)))

    def checkpoint_written(self, version: PolicyVersion, seconds: float) -> None:
        self._exporter.set(trainer_metrics.CHECKPOINT_STEP, version.step)
        self._exporter.observe(trainer_metrics.CHECKPOINT_SECONDS, seconds)

    def serve(self, intake: Intake, queue: TrainerQueue) -> None:
        """Gauges that change between steps; at most once a second."""
        compute = self._state.compute
        now_seconds = time.monotonic()
        # Between two updates of the gauges that change between steps
        if now_seconds - self._served_at < 1.0:
            return
        self._served_at = now_seconds
        for role, hours in compute.state.items():
            self._exporter.set(trainer_metrics.COMPUTE_STATE, hours, role=role)
        for role, hours in compute.spent.items():
            self._set_total(trainer_metrics.COMPUTE_SPENT, hours, role=role)
        # Often, because device-hours that are not saved are lost with the process.
        compute.save()
        self._exporter.set(trainer_metrics.GROUPS_OUTSTANDING, len(self._state.ledger.outstanding))
        finished = queue.outstanding().finished.values()
        self._exporter.set(wire_metrics.QUEUE_GROUPS, len(finished))
        self._exporter.set(wire_metrics.QUEUE_BYTES, sum(group.num_bytes for group in finished))
        self._set_total(trainer_metrics.GROUPS, queue.count_refused(), outcome="refused")
        away_seconds = queue.away_seconds
        self._set_total(wire_metrics.REDIS_AWAY, away_seconds)
        self._set_total(trainer_metrics.TRAINER_WAIT, away_seconds, **{"for": "redis"})
        self._set_total(wire_metrics.UNREADABLE, queue.unreadable())
        self._set_total(wire_metrics.UNKNOWN_FIELDS, queue.unknown_fields)
        if intake.teacher is not None:
            self._exporter.set(trainer_metrics.TEACHER_GROUPS, intake.num_at_teacher)
        tokens = intake.generated_tokens
        total_tokens = sum(tokens.values())
        if total_tokens:
            self._exporter.set(
                trainer_metrics.COMPUTE_EVAL_SHARE, tokens[Purpose.EVAL] / total_tokens
            )

    def _set_total(self, metric: Metric, source_total: float, **labels: str) -> None:
        # The total is counted elsewhere, and a counter must not fall with it.
        key = (metric.name, *labels.values())
        exported = self._exported_totals.get(key, 0)
        self._exporter.add(metric, max(0, source_total - exported), **labels)
        self._exported_totals[key] = max(source_total, exported)
