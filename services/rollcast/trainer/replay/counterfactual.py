"""A recorded step under another recipe: loss, gradient norm, shares cut, and the change of each
token's probability by one update.

The recipe decides again on advantages, filters and weights. Without weights, loss and shares follow
from the recorded log-probs. With weights, the trainer's own learner makes one update with the
recipe of the run and one with the other; both begin without the optimizer's moments, which are not
recorded, so that the two are compared with one another, not with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import yaml

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recorded.array_file import Arrays
from rollcast.trainer.learner.batch import MicroBatch, TrainingSequence, plan_micro_batches
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.replay.assembly_check import assemble_again
from rollcast.trainer.replay.loss_check import figures_of_record
from rollcast.trainer.replay.recorded_batch import RecordedBatch, SequenceKey
from rollcast.trainer.replay.trainer_pass import make_learner, update

FIGURES = (
    "loss",
    "grad_norm",
    "loss_tokens",
    "ratios_clipped_low",
    "ratios_clipped_high",
    "ratios_masked",
    "kl",
)
TokenKey = tuple[int, int, int, int]
"""Group, rollout, sequence and position of a token."""


def changed_config(batch: RecordedBatch, loss: str | None, settings: Sequence[str]) -> RunConfig:
    """The run's settings with another loss, `./other.py:f`, and with `recipe.x=value`.

    Raises UserError for a setting that does not exist, or a value that it does not take.
    """
    changed = batch.config.model_dump(mode="json")
    for setting in settings:
        name, equals, text = setting.partition("=")
        *parents, leaf = name.split(".")
        if not equals or parents[:1] != ["recipe"]:
            raise UserError(
                f"--set {setting}: needs recipe.NAME=VALUE, such as recipe.loss.kind=gspo"
            )
        # A missing group of settings is made: its other settings are defaults.
        group = changed
        for parent in parents:
            if not isinstance(group.get(parent), dict):
                group[parent] = {}
            group = group[parent]
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UserError(f"--set {setting}: the value is no YAML") from error
        if leaf == "kind" and group.get("kind") != value:
            group.clear()  # what the other kind has of its own would be unknown here
        group[leaf] = value
    if loss is not None:
        changed["recipe"]["loss"] = {"kind": "python", "function": loss}
    return parse_run_config(changed, source="--set, --loss")


def counterfactual(
    batch: RecordedBatch,
    recipe: Recipe,
    tokens_per_micro_batch: int,
    ranks: Ranks,
    weights: Arrays | None,
) -> dict[str, Any]:
    """Figures under the recorded and the other `recipe`.

    Raises UserError as functions of the user's own do.
    """
    sequences = assemble_again(batch, recipe)
    not_checked: list[str] = []
    answer: dict[str, Any] = {
        "sequences": {"recorded": len(batch.sequences), "other": len(sequences)},
        "not_checked": not_checked,
    }
    if not sequences:
        not_checked.append("everything: the other recipe trains on nothing of this batch")
        return answer
    [micro_batches] = plan_micro_batches(sequences, world_size=1, max_tokens=tokens_per_micro_batch)
    plans = ((batch.config.recipe, batch.micro_batches), (recipe, micro_batches))
    if weights is None:
        figures = [figures_of_record(batch, *plan) for plan in plans]
        if figures[1] is None:
            not_checked.append(
                "loss: the other recipe needs log-probs of further sequences or of a reference "
                "policy, which are not recorded; with record.weights: step they are computed"
            )
        not_checked.append(
            "gradient norm and change of probabilities: no weights were kept (record.weights)"
        )
    else:
        updates = [_update_twice(batch, *plan, ranks, weights) for plan in plans]
        figures = [recipe_update.figures for recipe_update in updates]
        answer["probability_changes"] = _changes(batch, sequences, *updates)
    recorded_figures, other_figures = (recipe_figures or {} for recipe_figures in figures)
    answer["figures"] = {
        name: {"recorded": recorded_figures.get(name), "other": other_figures.get(name)}
        for name in FIGURES
        if recorded_figures.get(name) is not None or other_figures.get(name) is not None
    }
    return answer


class RecipeUpdate(NamedTuple):
    """One update under a recipe."""

    figures: dict[str, Any]
    logprobs: dict[TokenKey, tuple[float, float]]
    """Log-probs of each loss token, before and after the update."""


def _update_twice(
    batch: RecordedBatch,
    recipe: Recipe,
    micro_batches: Sequence[MicroBatch],
    ranks: Ranks,
    weights: Arrays,
) -> RecipeUpdate:
    """The second update shows the log-probs after the first."""
    learner = make_learner(batch, recipe, ranks, weights)
    stats, old_logprobs = update(learner, micro_batches)
    _, new_logprobs = update(learner, micro_batches)
    keys = [
        (*sequence.origin, int(position))
        for micro_batch in micro_batches
        for sequence in micro_batch
        for position in np.flatnonzero(sequence.loss_mask)
    ]
    logprobs = zip(old_logprobs.tolist(), new_logprobs.tolist(), strict=True)
    figures = {name: getattr(stats, name) for name in FIGURES}
    return RecipeUpdate(figures, dict(zip(keys, logprobs, strict=True)))


def _changes(
    batch: RecordedBatch,
    sequences: Sequence[TrainingSequence],
    recorded_update: RecipeUpdate,
    other_update: RecipeUpdate,
) -> dict[str, Any]:
    """The mean change of right and of wrong answers' tokens, and the tokens on which the recipes
    differ most.
    """
    advantages = {sequence.origin: sequence.advantage for sequence in sequences}
    compared = {index for index, _ in batch.groups}
    rows = []
    for key, logprobs in other_update.logprobs.items():
        if key not in recorded_update.logprobs or key[0] not in compared:
            continue
        old_probability, new_probability = np.exp(recorded_update.logprobs[key])
        other_old, other_new = np.exp(logprobs)
        location = batch.locate(SequenceKey(*key[:3]), key[3])
        rows.append(
            {
                "group": location.group,
                "rollout": location.rollout,
                "token": location.token,
                "before": old_probability,
                "recorded_recipe": new_probability - old_probability,
                "other_recipe": other_new - other_old,
                "is_raised": advantages[key[:3]] > 0,
                "text": location.text,
            }
        )
    rows.sort(key=lambda row: -abs(row["other_recipe"] - row["recorded_recipe"]))
    return {
        "tokens": len(rows),
        "mean_of_raised": _means([row for row in rows if row["is_raised"]]),
        "mean_of_lowered": _means([row for row in rows if not row["is_raised"]]),
        "each": rows,
    }


def _means(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    return {
        name: float(np.mean([row[name] for row in rows])) if rows else None
        for name in ("recorded_recipe", "other_recipe")
    }


def in_words(answer: dict[str, Any]) -> list[str]:
    """The two recipes side by side, and ten tokens on which they differ most."""
    lines = [f"{'under another recipe':<34} {'recorded':>14} {'other':>14}"]
    for name, pair in (answer.get("figures") or {}).items():
        lines.append(_line(name, pair["recorded"], pair["other"]))
    counts = answer["sequences"]
    lines.append(_line("sequences", counts["recorded"], counts["other"]))
    changes = answer.get("probability_changes")
    if changes:
        for name, title in (
            ("mean_of_raised", "change of tokens with advantage"),
            ("mean_of_lowered", "change of tokens without"),
        ):
            lines.append(_line(title, *changes[name].values()))
        lines += [
            f"group {row['group']}, rollout {row['rollout']}, token {row['token']}: probability "
            f"{row['before']:.3f}, {row['recorded_recipe']:+.4f} and {row['other_recipe']:+.4f}: "
            f"{row['text']}"
            for row in changes["each"][:10]
        ]
    return lines + [f"not checked: {reason}" for reason in answer["not_checked"]]


def _line(title: str, *values: float | None) -> str:
    numbers = ("" if value is None else f"{value:.6g}" for value in values)
    return " ".join([f"{title:<34}", *(f"{number:>14}" for number in numbers)])
