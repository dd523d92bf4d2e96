"""The tokens of one group, side by side: what the generator, the trainer and the replay say of
each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rollcast.trainer.replay.recorded_batch import RecordedBatch
from rollcast.trainer.replay.sampled_tokens import recorded_versions, sampled_mask

COLUMNS = ("generator", "generator_replayed", "trainer", "trainer_replayed")


def token_rows(batch: RecordedBatch) -> list[dict[str, Any]]:
    """One row a sampled token of the groups that are compared."""
    trained = {
        (*sequence.origin, int(position)): float(logprob)
        for item, sequence in zip(batch.bundle.sequences, batch.sequences, strict=True)
        if item.logprobs is not None
        for position, logprob in zip(np.flatnonzero(sequence.loss_mask), item.logprobs, strict=True)
    }
    rows = []
    for key, sequence in batch.compared_sequences():
        rollout = batch.rollout(key)
        versions = recorded_versions(sequence)
        for position in np.flatnonzero(sampled_mask(sequence)).tolist():
            row: dict[str, Any] = {
                "rollout": rollout.index,
                "sequence": key.number,
                "token": position,
                "text": batch.decode([int(sequence.token_ids[position])]),
                "version": str(versions[position]),
                "reward": rollout.reward,
                "generator": float(sequence.logprobs[position]),
                "trainer": trained.get((*key, position)),
            }
            rows.append(row | batch.replayed_logprobs.get((*key, position), {}))
    return rows


def tokens_in_words(rows: list[dict[str, Any]]) -> list[str]:
    """The forty tokens with the largest differences between two columns, in order."""
    if not rows:
        return []
    by_gap = sorted(range(len(rows)), key=lambda index: -_largest_gap(rows[index]))
    shown_indices = sorted(by_gap[:40])
    lines = [
        f"{'rollout':>7} {'token':>6} {'version':>8} {'generator':>10} {'replayed':>10} "
        f"{'trainer':>10} {'replayed':>10}  text"
    ]
    for row in (rows[index] for index in shown_indices):
        values = " ".join(
            f"{'' if row.get(name) is None else format(row[name], '.4f'):>10}" for name in COLUMNS
        )
        lines.append(
            f"{row['rollout']:>7} {row['token']:>6} {row['version']:>8} {values}  {row['text']!r}"
        )
    if len(rows) > len(shown_indices):
        lines.append(f"{len(rows) - len(shown_indices)} further tokens differ less; --json has all")
    return lines


def _largest_gap(row: dict[str, Any]) -> float:
    """Nats between a recorded and a replayed log-prob, or else between both components."""
    replayed_pairs = (("generator", "generator_replayed"), ("trainer", "trainer_replayed"))
    for pairs in (replayed_pairs, (("trainer", "generator"),)):
        gaps = [
            abs(row[first] - row[second])
            for first, second in pairs
            if row.get(first) is not None and row.get(second) is not None
        ]
        if gaps:
            return float(max(gaps))
    return 0.0
