"""A recorded step under another recipe: loss, gradient norm, shares cut, and the change of each
token's probability by one update.

The recipe decides again on advantages, filters and weights. Without weights, loss and shares follow
from the recorded log-probs. With weights, the trainer's own learner makes one update with the
recipe of the run and one with the other; both begin without the optimizer's moments, which are not
recorded, so that the two are compared with one another, not with the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import yaml

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recorded.array_file import Arrays
from rollcast.trainer.learner.batch import MicroBatch, TrainingSequence, plan_micro_batches
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.replay.assembled import assemble_again
from rollcast.trainer.replay.losses import figures_of_record
from rollcast.trainer.replay.recorded_batch import RecordedBatch
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
        # A missing group on the way is made: its other settings are defaults.
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
    micro_batches = plan_micro_batches(sequences, world_size=1, max_tokens=tokens_per_micro_batch)[
        0
    ]
    answer: dict[str, Any] = {
        "sequences": {"recorded": len(batch.sequences), "other": len(sequences)},
        "not_checked": [],
    }
    if not sequences:
        answer["not_checked"].append("everything: the other recipe trains on nothing of this batch")
        return answer
    if weights is None:
        recorded = figures_of_record(batch, batch.config.recipe, batch.micro_batches)
        other = figures_of_record(batch, recipe, micro_batches)
        if other is None:
            answer["not_checked"].append(
                "loss: the other recipe needs log-probs of further sequences or of a reference "
                "policy, which are not recorded; with record.weights: step they are computed"
            )
        answer["not_checked"].append(
            "gradient norm and change of probabilities: no weights were kept (record.weights)"
        )
        answer["figures"] = _side_by_side(recorded or {}, other or {})
        return answer
    recorded, own_changes = _update_and_changes(
        batch, batch.config.recipe, batch.micro_batches, ranks, weights
    )
    other, other_changes = _update_and_changes(batch, recipe, micro_batches, ranks, weights)
    answer["figures"] = _side_by_side(recorded, other)
    answer["probability_changes"] = _changes(batch, sequences, own_changes, other_changes)
    return answer


def _side_by_side(recorded: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {
        name: {"recorded": recorded.get(name), "other": other.get(name)}
        for name in FIGURES
        if recorded.get(name) is not None or other.get(name) is not None
    }


def _update_and_changes(
    batch: RecordedBatch,
    recipe: Recipe,
    micro_batches: Sequence[MicroBatch],
    ranks: Ranks,
    weights: Arrays,
) -> tuple[dict[str, Any], dict[TokenKey, tuple[float, float]]]:
    """Figures of one update, and each loss token's log-prob before and after it."""
    learner = make_learner(batch, recipe, ranks, weights)
    stats, before = update(learner, micro_batches)
    _, after = update(learner, micro_batches)
    keys = [
        (*sequence.origin, int(position))
        for micro_batch in micro_batches
        for sequence in micro_batch
        for position in np.flatnonzero(sequence.loss_mask)
    ]
    values = zip(before.tolist(), after.tolist(), strict=True)
    figures = {name: getattr(stats, name) for name in FIGURES}
    return figures, dict(zip(keys, values, strict=True))


def _changes(
    batch: RecordedBatch,
    sequences: Sequence[TrainingSequence],
    own: dict[TokenKey, tuple[float, float]],
    other: dict[TokenKey, tuple[float, float]],
) -> dict[str, Any]:
    """The mean change of right and of wrong answers' tokens, and the tokens on which the recipes
    differ most.
    """
    advantages = {sequence.origin: sequence.advantage for sequence in sequences}
    looked_at = {index for index, _ in batch.groups}
    common = [key for key in other if key in own and key[0] in looked_at]
    rows = []
    for key in common:
        probabilities = [np.exp(value) for value in (*own[key], *other[key])]
        place = batch.place(*key)
        rows.append(
            {
                "group": place.group,
                "rollout": place.rollout,
                "token": place.token,
                "before": probabilities[0],
                "recorded_recipe": probabilities[1] - probabilities[0],
                "other_recipe": probabilities[3] - probabilities[2],
                "is_raised": advantages[key[:3]] > 0,
                "text": place.text,
            }
        )

    def mean(column: str, *, is_raised: bool) -> float | None:
        values = [row[column] for row in rows if row["is_raised"] is is_raised]
        return float(np.mean(values)) if values else None

    rows.sort(key=lambda row: -abs(row["other_recipe"] - row["recorded_recipe"]))
    return {
        "tokens": len(rows),
        "mean_of_raised": {
            name: mean(name, is_raised=True) for name in ("recorded_recipe", "other_recipe")
        },
        "mean_of_lowered": {
            name: mean(name, is_raised=False) for name in ("recorded_recipe", "other_recipe")
        },
        "each": rows,
    }


def in_words(answer: dict[str, Any]) -> list[str]:
    """The two recipes side by side, and ten tokens on which they differ most."""
    lines = [f"{'under another recipe':<34} {'recorded':>14} {'other':>14}"]
    for name, pair in (answer.get("figures") or {}).items():
        lines.append(f"{name:<34} {_number(pair['recorded']):>14} {_number(pair['other']):>14}")
    counts = answer["sequences"]
    lines.append(f"{'sequences':<34} {counts['recorded']:>14} {counts['other']:>14}")
    changes = answer.get("probability_changes")
    if changes:
        for name, title in (
            ("mean_of_raised", "change of tokens with advantage"),
            ("mean_of_lowered", "change of tokens without"),
        ):
            pair = changes[name]
            lines.append(
                f"{title:<34} {_number(pair['recorded_recipe']):>14} "
                f"{_number(pair['other_recipe']):>14}"
            )
        lines += [
            f"group {row['group']}, rollout {row['rollout']}, token {row['token']}: probability "
            f"{row['before']:.3f}, {row['recorded_recipe']:+.4f} and {row['other_recipe']:+.4f}: "
            f"{row['text']}"
            for row in changes["each"][:10]
        ]
    return lines + [f"not checked: {reason}" for reason in answer["not_checked"]]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
