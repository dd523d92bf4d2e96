"""A step of two ranks is repeated by one."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rollcast.recorded.step_bundle import load_step
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.replay.program import replay
from testkit.forked_programs import ForkedPrograms
from tests.trainer.gloo_ranks import run_ranks


def test_two_ranks_record_what_one_repeats(
    trainers: ForkedPrograms, untied_model: Path, tmp_path: Path, ranks: Ranks
) -> None:
    run_ranks(trainers, tmp_path, "tests.trainer.recorded_steps", untied_model, tmp_path)
    for number in (1, 2):
        bundle = load_step(tmp_path / "test" / "recorded" / f"step-{number}")
        assert bundle.world_size == 2
        assert {item.rank for item in bundle.sequences} == {0, 1}
        report = replay(bundle, ranks)
        comparisons = {(item.component, item.check): item for item in report.comparisons}
        for name in ("loss", "gradient norm", "loss of its own weights"):
            pair = report.figures[name]
            assert pair["replayed"] == pytest.approx(pair["recorded"], rel=1e-5), name
        own = comparisons["trainer", "log-probs of its own weights"]
        assert own.state == "agrees"
        assert own.largest is not None
        assert own.largest < 1e-4
        assert comparisons["trainer", "kept weights"].state == "agrees", "whole tensors"


def test_a_slow_disk_keeps_no_rank_waiting(
    trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    run_ranks(trainers, tmp_path, "tests.trainer.recorded_steps", untied_model, tmp_path, "slow")
    folder = tmp_path / "test" / "recorded"
    bundles = [load_step(folder / f"step-{number}") for number in range(1, 5)]
    assert [str(version) for version in bundles[0].kept_versions] == ["1.0"]
    for bundle, following in pairwise(bundles):
        assert bundle.digests_after == following.digests_before, "of all ranks"
        for item in bundle.sequences:
            assert item.logprobs is not None
            assert item.logprobs.all(), "the other rank's too"


def test_a_disk_that_hangs_does_not_hold_up_the_end(
    trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    run_ranks(
        trainers,
        tmp_path,
        "tests.trainer.recorded_steps",
        untied_model,
        tmp_path,
        "hung",
        world_size=1,
    )
    printed = (tmp_path / "rank-0.log").read_text()
    missing = ["weights 1.1", "step-3", "weights 1.2", "step-4", "weights 1.3"]
    assert all(name in printed for name in missing), "in the log"
    assert 'rollcast_recorder_dropped_total{reason="slow_disk",run="test"} 5.0' in printed
    names = {path.name for path in (tmp_path / "test" / "recorded").glob("step-*")}
    assert names == {"step-1", "step-2"}
