"""The tokens of one group, side by side: what the generator, the trainer and the replay say of
each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rollcast.trainer.replay.cached_model import recorded_versions, sampled_mask
from rollcast.trainer.replay.recorded_batch import RecordedBatch

COLUMNS = ("generator", "generator_replayed", "trainer", "trainer_replayed")


def token_rows(batch: RecordedBatch) -> list[dict[str, Any]]:
    """One row a sampled token of the group that is looked at."""
    trained = {
        (item.group, item.rollout, item.number, int(position)): float(logprob)
        for item, sequence in zip(batch.bundle.sequences, batch.sequences, strict=True)
        if item.logprobs is not None
        for position, logprob in zip(np.flatnonzero(sequence.loss_mask), item.logprobs, strict=True)
    }
    rows = []
    for index, group in batch.groups:
        for place, rollout in enumerate(group.rollouts):
            for number, sequence in enumerate(rollout.sequences):
                versions = recorded_versions(sequence)
                for position in np.flatnonzero(sampled_mask(sequence)).tolist():
                    key = (index, place, number, position)
                    row: dict[str, Any] = {
                        "rollout": rollout.index,
                        "sequence": number,
                        "token": position,
                        "text": batch.text([int(sequence.token_ids[position])]),
                        "version": str(versions[position]),
                        "reward": rollout.reward,
                        "generator": float(sequence.logprobs[position]),
                        "trainer": trained.get(key),
                    }
                    rows.append(row | batch.token_columns.get(key, {}))
    return rows


def tokens_in_words(rows: list[dict[str, Any]]) -> list[str]:
    """The forty tokens with the largest differences between two columns, in order."""
    if not rows:
        return []
    widest = sorted(range(len(rows)), key=lambda place: -_spread(rows[place]))[:40]
    lines = [
        f"{'rollout':>7} {'token':>6} {'version':>8} {'generator':>10} {'replayed':>10} "
        f"{'trainer':>10} {'replayed':>10}  text"
    ]
    for place in sorted(widest):
        row = rows[place]
        values = " ".join(
            f"{'' if row.get(name) is None else format(row[name], '.4f'):>10}" for name in COLUMNS
        )
        lines.append(
            f"{row['rollout']:>7} {row['token']:>6} {row['version']:>8} {values}  {row['text']!r}"
        )
    if len(rows) > len(widest):
        lines.append(f"{len(rows) - len(widest)} further tokens differ less; --json has all")
    return lines


def _spread(row: dict[str, Any]) -> float:
    """Largest difference between a recorded and a replayed log-prob, or else between both sides."""
    pairs = (("generator", "generator_replayed"), ("trainer", "trainer_replayed"))
    gaps = [
        abs(row[one] - row[other])
        for one, other in pairs
        if row.get(one) is not None and row.get(other) is not None
    ]
    if gaps:
        return float(max(gaps))
    if row.get("trainer") is None:
        return 0.0
    gap: float = abs(row["trainer"] - row["generator"])
    return gap
