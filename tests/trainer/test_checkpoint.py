from __future__ import annotations

import json
import resource
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from rollcast.config.errors import PassingError, UserError
from rollcast.curves.sources.run_folder import read_start_record
from rollcast.runfolder.writing import make_folder
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.learner.checkpoint import checkpoint_version, checkpoints, load_weights
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.service import begin, restore
from rollcast.wire.version import PolicyVersion
from testkit.forked_programs import ForkedPrograms
from tests.trainer.learner_state import state
from tests.trainer.tiny_models import make_config, make_sequences, newest_whole, write_model


def saved(group: LearnerGroup, version: str, controller: dict[str, Any]) -> Path:
    """The folder of a checkpoint that is written."""
    path = group.save(PolicyVersion.parse(version), controller).result()
    assert isinstance(path, Path)
    return path


def test_a_killed_run_continues_bit_equal_to_an_uninterrupted_one(
    ranks: Ranks, trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    arguments = [str(untied_model), str(tmp_path)]
    child = trainers.start("tests.trainer.killed_while_saving", arguments, tmp_path / "child.log")
    assert child.wait(120) == -signal.SIGKILL, (tmp_path / "child.log").read_text()
    folder = tmp_path / "test" / "checkpoints"
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".partial-1.4"]
    latest, *_ = checkpoints(folder)
    assert checkpoint_version(latest) == PolicyVersion(1, 3)

    resumed = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    torch.rand(5)
    assert resumed.restore(latest) == {"next": 3}
    assert resumed.learner.updates == 3
    uninterrupted = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    for step in range(6):
        uninterrupted.update(make_sequences(step))
    for step in range(3, 6):
        resumed.update(make_sequences(step))
    for found, expected in zip(state(resumed), state(uninterrupted), strict=True):
        assert torch.equal(found, expected)
    resumed.save(PolicyVersion(2, 6), {}).result()
    assert not list(folder.glob(".partial-*"))


def test_a_checkpoint_is_of_the_moment_though_training_goes_on(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.update(make_sequences(0))
    expected = state(group)
    writing = group.save(PolicyVersion(1, 1), {})
    group.update(make_sequences(1))
    group.save(PolicyVersion(1, 2), {})  # waits for the one before
    assert writing.done()
    group.restore(writing.result())
    assert all(
        torch.equal(found, wanted) for found, wanted in zip(state(group), expected, strict=True)
    )


def test_random_numbers_continue(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    path = group.save(PolicyVersion(1, 0), {}).result()
    expected = torch.rand(4)
    group.restore(path)
    assert torch.equal(torch.rand(4), expected)


def test_the_newest_are_kept_by_version_not_by_name(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(
        make_config(untied_model, tmp_path, trainer={"keep_checkpoints": 2}), ranks
    )
    for version in ("1.9", "1.10", "2.10", "10.11"):
        path = saved(group, version, {"version": version})
    assert checkpoints(path.parent)[0] == path
    assert sorted(p.name for p in path.parent.iterdir()) == ["10.11", "2.10"]
    assert group.restore(path) == {"version": "10.11"}


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert checkpoints(tmp_path / "absent") == []
    (tmp_path / "notes").mkdir()
    (tmp_path / ".partial-1.5").mkdir()
    assert checkpoints(tmp_path) == []


def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.save(PolicyVersion(1, 1), {}).result()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(
            PassingError, match=r"^checkpoint folder .* cannot be written \(.*\); free space"
        ):
            group.save(PolicyVersion(1, 2), {}).result()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (tmp_path / "test" / "checkpoints").iterdir()] == ["1.1"]
    group.save(PolicyVersion(1, 2), {}).result()


def test_a_folder_that_cannot_be_made_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    (tmp_path / "test").write_text("a file is in the way")
    with pytest.raises(UserError, match="cannot be written") as error:
        group.save(PolicyVersion(1, 1), {}).result()
    assert error.value.exit_code == 2


def test_another_models_checkpoint_is_refused(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    path = (
        LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
        .save(PolicyVersion(1, 1), {})
        .result()
    )
    other = write_model(tmp_path / "other", tied=False, hidden=24)
    with pytest.raises(
        UserError, match=r"holds weights\..* with shape \(\d+, 32\), model.path needs \(\d+, 24\)"
    ):
        LearnerGroup.build(make_config(other, tmp_path), ranks).restore(path)


FAULTS = [
    "no controller",
    "cut controller",
    "no metadata",
    "cut metadata",
    "flipped metadata",
    "flipped controller",
    "no tensors",
    "cut tensors",
    "flipped tensors",
]


def spoil(path: Path, fault: str) -> None:
    """Take away, halve or change one file of a checkpoint."""
    name = {"controller": "controller.json", "metadata": ".metadata", "tensors": "__0_0.distcp"}[
        fault.split()[1]
    ]
    data = bytearray((path / name).read_bytes())
    if fault.startswith("no"):
        (path / name).unlink()
    elif fault.startswith("cut"):
        (path / name).write_bytes(data[: len(data) // 2])
    else:
        data[len(data) // 2] ^= 1
        (path / name).write_bytes(data)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_resumed_run_goes_on_from_the_newest_whole_checkpoint(
    ranks: Ranks, untied_model: Path, tmp_path: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(untied_model, tmp_path)
    group = LearnerGroup.build(config, ranks)
    progress = [Progress(step=step) for step in (1, 2)]
    paths = [saved(group, f"1.{one.step}", one.as_json()) for one in progress]
    spoil(paths[1], fault)
    assert newest_whole(config, group) == progress[0]
    said = [line for line in capsys.readouterr().out.splitlines() if "damaged" in line]
    assert len(said) == 1
    assert str(paths[1]) in said[0]
    spoil(paths[0], fault)
    with pytest.raises(UserError, match="remove it"):
        newest_whole(config, group)


def test_a_chosen_step_is_continued_or_refused(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    paths = [saved(group, f"1.{step}", Progress(step=step).as_json()) for step in (1, 2)]
    place = paths[0].parent
    assert restore("r", place, group, resume=True, step=2) == Progress(step=2)
    spoil(paths[1], "cut tensors")
    assert restore("r", place, group, resume=True) == Progress(step=1)
    with pytest.raises(UserError) as refused:
        restore("r", place, group, resume=True, step=2)
    assert str(refused.value).startswith(f"--step 2: checkpoint {paths[1]} cannot be read (")
    assert str(refused.value).endswith(
        "; remove it to resume from an older one, or name another step: kept are those of steps 1"
    )
    saved(group, "2.3", Progress(step=3).as_json())
    assert restore("r", place, group, resume=True, step=2) == Progress(step=3), (
        "a restarted trainer continues its own"
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_checkpoint_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path, fault: str
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    path = saved(group, "1.1", {})
    spoil(path, fault)
    with pytest.raises(UserError, match=r"^checkpoint .*; remove it") as error:
        group.restore(path)
    assert "\n" not in str(error.value)


def test_the_controllers_state_is_readable_json(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    path = saved(
        LearnerGroup.build(make_config(untied_model, tmp_path), ranks), "1.1", {"curriculum": [3]}
    )
    assert json.loads((path / "controller.json").read_text())["controller"] == {"curriculum": [3]}


def test_what_the_controller_learned_since_is_kept_at_the_same_version(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Batches without an update settle groups at an unchanged version."""
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    group.update(make_sequences(0))
    first = group.save(PolicyVersion(1, 1), {"settled": 3}).result()
    assert group.save(PolicyVersion(1, 1), {"settled": 7}).result() == first
    assert LearnerGroup.build(make_config(untied_model, tmp_path), ranks).restore(first) == {
        "settled": 7
    }


def test_a_new_run_begins_with_anothers_weights_and_says_what_they_cost(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Of a chain of runs everything is counted; nothing of it is the new run's own compute."""
    earlier = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    earlier.update(make_sequences(0))
    spent = Progress(
        step=1, incarnation=1, compute_state={"generator": 2.0, "trainer": 1.5}, spent_before=0.25
    )
    saved(earlier, "1.1", spent.as_json())
    config = make_config(
        untied_model,
        tmp_path / "later",
        model={"path": str(untied_model), "from_run": str(tmp_path / "test")},
    )
    later = LearnerGroup.build(config, ranks)
    make_folder(config.run_folder)
    progress = begin(config.run_folder, config.model, later)
    assert progress == Progress(spent_before=3.75)
    assert later.learner.updates == 0
    for found, expected in zip(later.learner.weights, earlier.learner.weights, strict=True):
        assert torch.equal(found.full_tensor(), expected.full_tensor())
    before = read_start_record(config.run_folder)
    assert before is not None
    assert (
        before.sentence
        == f"before this run: 3.75 device-hours ({tmp_path / 'test'}, 1.1), no part of the curve"
    )
    moments = [
        value
        for weight in later.learner.weights
        for value in later.learner.optimizer.state[weight].values()
    ]
    assert not any(torch.count_nonzero(getattr(value, "_local_tensor", value)) for value in moments)


@pytest.mark.parametrize("smaller", [{"layers": 1}, {"tied": True}], ids=["fewer layers", "tied"])
def test_a_checkpoint_of_a_larger_model_is_not_loaded_in_part(
    ranks: Ranks, untied_model: Path, tmp_path: Path, smaller: dict[str, Any]
) -> None:
    path = saved(LearnerGroup.build(make_config(untied_model, tmp_path), ranks), "1.1", {})
    group = LearnerGroup.build(
        make_config(write_model(tmp_path / "smaller", **smaller), tmp_path / "other"), ranks
    )
    with pytest.raises(
        UserError,
        match=r"^checkpoint .* holds .*, which model\.path does not have; give the model that it",
    ):
        load_weights(path, group.learner)


def test_a_new_run_begins_with_the_checkpoint_of_a_step_of_another(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    earlier = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    saved(earlier, "1.1", Progress(step=1, incarnation=1).as_json())
    first = [weight.full_tensor().clone() for weight in earlier.learner.weights]
    earlier.update(make_sequences(0))
    saved(earlier, "1.2", Progress(step=2, incarnation=1).as_json())

    model = {"path": str(untied_model), "from_run": str(tmp_path / "test")}
    config = make_config(untied_model, tmp_path / "later", model=model | {"from_step": 1})
    later = LearnerGroup.build(config, ranks)
    make_folder(config.run_folder)
    begin(config.run_folder, config.model, later)
    assert all(
        torch.equal(found.full_tensor(), one)
        for found, one in zip(later.learner.weights, first, strict=True)
    )
    before = read_start_record(config.run_folder)
    assert before is not None
    assert before.version == "1.1"
    with pytest.raises(
        UserError, match=r"^model\.from_step = 3: .* of that step; kept are those of steps 1, 2$"
    ):
        begin(config.run_folder, config.model.model_copy(update={"from_step": 3}), later)


def test_a_damaged_earlier_run_gives_the_checkpoint_before_and_none_at_all_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    paths = [
        saved(group, f"1.{step}", Progress(step=step, incarnation=1).as_json()) for step in (1, 2)
    ]
    spoil(paths[1], "flipped tensors")
    config = make_config(
        untied_model,
        tmp_path / "later",
        model={"path": str(untied_model), "from_run": str(paths[0].parent)},
    )
    make_folder(config.run_folder)
    begin(config.run_folder, config.model, group)
    before = read_start_record(config.run_folder)
    assert before is not None
    assert (before.version, before.device_hours) == ("1.1", None)
    nothing = make_config(
        untied_model,
        tmp_path / "later",
        model={"path": str(untied_model), "from_run": str(tmp_path)},
    )
    with pytest.raises(
        UserError, match=r"^model\.from_run = .*: holds no checkpoint; give the folder of a run"
    ):
        begin(nothing.run_folder, nothing.model, group)


def test_what_a_fine_tuned_model_cost_is_said_where_it_is_known(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    plain = make_config(untied_model, tmp_path)
    make_folder(plain.run_folder)
    assert begin(plain.run_folder, plain.model, group) == Progress()
    assert read_start_record(plain.run_folder) is None
    tuned = make_config(
        untied_model, tmp_path, model={"path": str(untied_model), "spent_device_hours": 12.0}
    )
    assert begin(tuned.run_folder, tuned.model, group) == Progress(spent_before=12.0)
    before = read_start_record(tuned.run_folder)
    assert before is not None
    assert (
        before.sentence
        == f"before this run: 12 device-hours ({untied_model}), no part of the curve"
    )
