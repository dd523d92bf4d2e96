"""Run as a process: one rank of two. In the memory of rank 1 numbers are changed between updates.

python -m tests.trainer.differing_ranks MODEL RUN_FOLDER    with torchrun's environment variables
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.device_mesh import init_device_mesh

from rollcast.config.errors import WrongNumbersError
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from tests.trainer.tiny_models import make_config, make_sequences


def flip(numbers: torch.Tensor, bit: int) -> None:
    """Change one bit of the first number."""
    with torch.no_grad():
        numbers.view(-1)[:1].view(torch.int32).bitwise_xor_(1 << bit)


def rotary_frequencies(group: LearnerGroup) -> torch.Tensor:
    return dict(group.learner.policy.named_buffers())["causal_lm.model.rotary_emb.inv_freq"]


def rows(group: LearnerGroup) -> torch.Tensor:
    return dict(group.learner.policy.trained_weights())["lm_head.weight"].to_local()


FAULTS: dict[str, Callable[[LearnerGroup], None]] = {
    "none": lambda group: None,
    "buffer": lambda group: flip(rotary_frequencies(group), 25),
    "buffer mended": lambda group: flip(rotary_frequencies(group), 25),
    "row": lambda group: flip(rows(group), 3),
}


def train(ranks: Ranks, name: str, model: Path, folder: Path, faults: list[str]) -> list[str]:
    """What rank 0 hears after each update, with the fault in rank 1's memory before it."""
    store, lane_store = (PrefixStore(name, store) for store in (ranks.store, ranks.lane_store))
    ranks = replace(ranks, store=store, lane_store=lane_store)
    config = make_config(model, folder / name, trainer={"checkpoint_every_steps": 1})
    group = LearnerGroup.build(config, ranks)
    if ranks.rank == 1:
        update = group.learner.update
        remaining = iter(faults)

        def update_with_a_fault(*arguments: object) -> object:
            FAULTS[next(remaining)](group)
            return update(*arguments)  # type: ignore[arg-type]

        group.learner.update = update_with_a_fault  # type: ignore[assignment, method-assign]
        assert group.follow() is TrainerEnding.FAILED
        return []
    heard = []
    for step, _ in enumerate(faults):
        try:
            group.update(make_sequences(step))
            heard.append("")
        except WrongNumbersError as error:
            heard.append(str(error))
    group.stop(TrainerEnding.FAILED)
    return heard


def main() -> None:
    model, folder = map(Path, sys.argv[1:])
    ranks = join_ranks(timeout_seconds=60, threads=1)
    replicas = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replica", "shard"))
    heard = {
        "shards": train(ranks, "shards", model, folder, ["none", "buffer", "buffer mended"]),
        "replicas": train(
            replace(ranks, mesh=replicas), "replicas", model, folder, ["none", "row"]
        ),
    }
    if ranks.rank == 0:
        torch.save(heard, folder / "heard.pt")
    ranks.leave()


if __name__ == "__main__":
    main()
