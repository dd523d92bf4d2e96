"""Two replicas of two shards over gloo, against one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from testkit.forked_programs import ForkedPrograms
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.replicas import UPDATES, WORLD_SIZE
from tests.trainer.tiny_models import make_config, make_sequences, write_model
from tests.trainer.two_ranks import distance, whole_weights


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("replicas") / "model")


@pytest.fixture(scope="module")
def replicas(trainers: ForkedPrograms, model: Path) -> list[dict[str, Any]]:
    """What each of the four ranks saw."""
    run_ranks(
        trainers, model.parent, "tests.trainer.replicas", model, model.parent, world_size=WORLD_SIZE
    )
    return [torch.load(model.with_name(f"rank-{rank}.pt")) for rank in range(WORLD_SIZE)]


def test_replicas_train_like_one_rank(
    ranks: Ranks, model: Path, tmp_path: Path, replicas: list[dict[str, Any]]
) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path), ranks)
    stats = [group.update(make_sequences(step, num_groups=12)) for step in range(UPDATES)]
    found = replicas[0]
    assert min(found["micro_batches"]) > 1, "gradients of several micro-batches must meet"
    assert found["loss"] == pytest.approx([one.loss for one in stats], rel=1e-5, abs=1e-6)
    assert found["grad_norm"] == pytest.approx([one.grad_norm for one in stats], rel=1e-5)
    assert distance(found["weights"], whole_weights(group)) < 1e-5


def test_both_replicas_hold_the_same_rows(replicas: list[dict[str, Any]]) -> None:
    rows = [one["rows"] for one in replicas]
    assert torch.equal(rows[0], rows[2])
    assert torch.equal(rows[1], rows[3])
    assert not torch.equal(rows[0], rows[1])


def test_a_checkpoint_of_replicas_is_that_of_one_copy(
    ranks: Ranks, model: Path, tmp_path: Path, replicas: list[dict[str, Any]]
) -> None:
    found = replicas[0]
    assert distance(found["restored"], found["weights"]) == 0.0
    group = LearnerGroup.build(make_config(model, tmp_path), ranks)
    group.restore(Path(found["checkpoint"]))
    assert distance(whole_weights(group), found["weights"]) == 0.0


def test_one_replica_stages_the_version(
    ranks: Ranks, model: Path, tmp_path: Path, replicas: list[dict[str, Any]]
) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path), ranks)
    first, second, *others = (one["staged_bytes"] for one in replicas)
    assert first + second == sum(buffer.numel() for buffer in group.slots[0].buffers)
    assert others == [0, 0]


def test_ranks_that_cannot_be_grouped_are_refused() -> None:
    with pytest.raises(
        UserError,
        match=r"^trainer\.shard_ranks = 2: it does not divide the 1 trainer ranks; set it",
    ):
        join_ranks(timeout_seconds=30, shard_ranks=2)
