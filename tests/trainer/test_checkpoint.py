from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rollcast.config.errors import PassingError, UserError
from rollcast.trainer.learner.checkpoint import checkpoint_version, latest_checkpoint
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences, write_model

KILLED_WHILE_SAVING = """
import os, signal, sys
from pathlib import Path
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import make_config, make_sequences

group = LearnerGroup.build(make_config(Path(sys.argv[1]), Path(sys.argv[2])), join_ranks(timeout_seconds=30, threads=1))
for step in range(3):
    group.update(make_sequences(step))
group.save(PolicyVersion(1, 3), {"next": 3})
group.update(make_sequences(3))
Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
group.save(PolicyVersion(1, 4), {"next": 4})
"""


def state(group: LearnerGroup) -> list[Tensor]:
    """Everything an update depends on."""
    optimizer = group.learner.optimizer
    moments = [optimizer.state[w][name] for w in group.learner.weights for name in ("exp_avg", "exp_avg_sq")]
    return [tensor.full_tensor().clone() for tensor in [*group.learner.weights, *moments]]


def test_a_killed_run_continues_bit_equal_to_an_uninterrupted_one(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, str(untied_model), str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1", "PATH": ""},
        timeout=120,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    folder = tmp_path / "test" / "checkpoints"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".partial-1.4"]
    latest = latest_checkpoint(folder)
    assert latest is not None
    assert checkpoint_version(latest) == PolicyVersion(1, 3)

    resumed = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    torch.rand(5)
    assert resumed.restore(latest) == {"next": 3}
    assert resumed.updates == 3
    uninterrupted = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    for step in range(6):
        uninterrupted.update(make_sequences(step))
    for step in range(3, 6):
        resumed.update(make_sequences(step))
    for found, expected in zip(state(resumed), state(uninterrupted), strict=True):
        assert torch.equal(found, expected)
    resumed.save(PolicyVersion(2, 6), {})
    assert not list(folder.glob(".partial-*"))


def test_random_numbers_continue(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    path = group.save(PolicyVersion(1, 0), {})
    expected = torch.rand(4)
    group.restore(path)
    assert torch.equal(torch.rand(4), expected)


def test_the_newest_are_kept_by_version_not_by_name(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path, trainer={"keep_checkpoints": 2}), ranks)
    for version in ("1.9", "1.10", "2.10", "10.11"):
        path = group.save(PolicyVersion.parse(version), {"version": version})
    assert latest_checkpoint(path.parent) == path
    assert sorted(p.name for p in path.parent.iterdir()) == ["10.11", "2.10"]
    assert group.restore(path) == {"version": "10.11"}


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path / "absent") is None
    (tmp_path / "notes").mkdir()
    (tmp_path / ".partial-1.5").mkdir()
    assert latest_checkpoint(tmp_path) is None


def test_a_full_disk_is_one_sentence_and_leaves_nothing(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.save(PolicyVersion(1, 1), {})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(PassingError, match=r"^checkpoint folder .* cannot be written \(.*\); free space"):
            group.save(PolicyVersion(1, 2), {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (tmp_path / "test" / "checkpoints").iterdir()] == ["1.1"]
    group.save(PolicyVersion(1, 2), {})


def test_a_folder_that_cannot_be_made_is_one_sentence(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    (tmp_path / "test").write_text("a file is in the way")
    with pytest.raises(UserError, match="cannot be written") as error:
        group.save(PolicyVersion(1, 1), {})
    assert error.value.exit_code == 2


def test_another_models_checkpoint_is_refused(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    path = LearnerGroup.build(make_config(untied_model, tmp_path), ranks).save(PolicyVersion(1, 1), {})
    other = write_model(tmp_path / "other", tied=False, hidden=24)
    with pytest.raises(UserError, match=r"holds weights\..* with shape \(\d+, 32\), model.path needs \(\d+, 24\)"):
        LearnerGroup.build(make_config(other, tmp_path), ranks).restore(path)


@pytest.mark.parametrize("fault", ["no controller", "cut controller", "no metadata", "cut metadata", "cut tensors"])
def test_a_damaged_checkpoint_is_one_sentence(ranks: Ranks, untied_model: Path, tmp_path: Path, fault: str) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    path = group.save(PolicyVersion(1, 1), {})
    name = {"controller": "controller.json", "metadata": ".metadata", "tensors": "__0_0.distcp"}[fault.split()[1]]
    if fault.startswith("no"):
        (path / name).unlink()
    else:
        data = (path / name).read_bytes()
        (path / name).write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"^checkpoint .*; remove it") as error:
        group.restore(path)
    assert "\n" not in str(error.value)


def test_the_controllers_state_is_readable_json(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    path = LearnerGroup.build(make_config(untied_model, tmp_path), ranks).save(PolicyVersion(1, 1), {"curriculum": [3]})
    assert json.loads((path / "controller.json").read_text())["controller"] == {"curriculum": [3]}


def test_what_the_controller_learned_since_is_kept_at_the_same_version(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Batches without an update settle groups at an unchanged version."""
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.update(make_sequences(0))
    first = group.save(PolicyVersion(1, 1), {"settled": 3})
    assert group.save(PolicyVersion(1, 1), {"settled": 7}) == first
    assert LearnerGroup.build(make_config(untied_model, tmp_path), ranks).restore(first) == {"settled": 7}
