"""How many published bfloat16 weights an optimizer step changes, and what `weights.encoding: changed` saves.

    python -m lab.changed [--steps 6]

The real learner, float32 masters, the recipe's AdamW without warm-up, a random Qwen3 of 28 million parameters, other
made-up rollouts at every step. Only the learning rate differs. Written to lab/results/changed.json. A trained model has
other weights and gradients: the shares are of this order, no more.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from statistics import median
from typing import Any

import torch

from rollcast.config.recipe import Recipe
from rollcast.config.services import Trainer, Weights
from rollcast.recipe.losses import make_loss
from rollcast.trainer.learner.batch import denominator, plan_micro_batches
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.trainer.learner.staging import stage_shard, weight_specs
from rollcast.weights.lane_transfer import pieces_of
from rollcast.weights.manifest import plan_buckets, total_bytes
from rollcast.weights.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.gpu import models
from testkit.gpu.learner import rollouts
from testkit.record import LAB_RESULTS, write_result

SHAPE = "28m"
RATES = (1e-7, 1e-6, 1e-5, 1e-4)


def measure(rate: float, steps: int, ranks: Ranks) -> dict[str, Any]:
    recipe = Recipe()
    settings = recipe.optimizer.model_copy(update={"learning_rate": rate, "warmup_steps": 0})
    policy = models.sharded(models.random_model(SHAPE, ranks.device), ranks, dtype=torch.bfloat16)
    learner = Learner(policy, settings=settings, loss=make_loss(recipe.loss), ranks=ranks)
    buckets = plan_buckets(weight_specs(policy, "bfloat16"), Weights().bucket_bytes)
    slots, size = StagingSlots(buckets), total_bytes(buckets)
    stage = partial(stage_shard, policy)
    slots.fill(0, PolicyVersion(1, 0), 0.0, stage)
    shares, travelled = [], []
    for step in range(1, steps + 1):
        sequences = rollouts(SHAPE, is_small=True, seed=step)
        (micro_batches,) = plan_micro_batches(sequences, world_size=1, max_tokens=Trainer().tokens_per_micro_batch)
        assert learner.update(micro_batches, denominator(sequences)).applied
        version, base = PolicyVersion(1, step), PolicyVersion(1, step - 1)
        slots.fill(step % 2, version, 0.0, stage)
        new, old = slots[step % 2], slots[1 - step % 2]
        differing = sum(
            int((ours.view(torch.int16) != theirs.view(torch.int16)).sum())
            for ours, theirs in zip(new.buffers, old.buffers, strict=True)
        )
        changes = slots.changes(step % 2, base)
        sent = 0
        for index, (start, end) in pieces_of(new, 1):
            packed = changes(index, slice(start, end))
            sent += end - start if packed is None else packed.numel()
        assert sent <= size
        shares.append(2 * differing / size)
        travelled.append(sent / size)
    return {
        "learning_rate": rate,
        "changed_share_median": round(median(shares), 5),
        "changed_share_range": [round(min(shares), 5), round(max(shares), 5)],
        "bytes_share_median": round(median(travelled), 5),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=6)
    arguments = parser.parse_args()
    ranks = join_ranks(timeout_seconds=60.0)
    report = {"steps": arguments.steps, "rates": [measure(rate, arguments.steps, ranks) for rate in RATES]}
    ranks.leave()
    print(json.dumps(report, indent=1))
    print(write_result("changed", report, LAB_RESULTS))


if __name__ == "__main__":
    main()
