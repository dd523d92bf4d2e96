"""`up --resume --step N`: later checkpoints are set aside,
and are back where the start is refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.local.earlier_checkpoint import Undo, go_back
from rollcast.local.services import service_specs
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints, kept_versions
from rollcast.trainer.learner.checkpoint import checkpoints
from tests.cli.command import refusal

KEPT = ("1.90", "1.100", "2.100", "2.110", "3.105")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The checkpoints of a run, and what is no checkpoint."""
    folder = tmp_path / "r" / "checkpoints"
    for name in KEPT:
        (folder / name).mkdir(parents=True)
        (folder / name / "controller.json").write_text("{}")
    for name in (".partial-3.120", "notes", "1.95"):
        (folder / name).mkdir()
    return folder


def names(place: Path) -> list[str]:
    return [folder.name for folder in kept_versions(place).values()]


def test_later_checkpoints_are_set_aside_and_the_trainer_takes_the_chosen_one(place: Path) -> None:
    undo: Undo = []
    (line,) = go_back(place, 100, undo)
    assert line == (
        "the run goes on from its checkpoint of step 100; later checkpoints are in "
        f"{place}/set-aside, remove it to free the disk"
    )
    assert names(place) == ["1.90", "1.100", "2.100"]
    newest = checkpoints(place)[0]
    assert isinstance(newest, Path)
    assert newest.name == "2.100"
    for call in reversed(undo):
        call()
    assert names(place) == list(KEPT)


def test_the_newest_step_sets_nothing_aside(place: Path) -> None:
    undo: Undo = []
    assert go_back(place, 105, undo) == ["the run goes on from its checkpoint of step 105"]
    assert names(place) == list(KEPT)
    assert undo == []


def test_what_an_earlier_way_back_set_aside_stays(place: Path) -> None:
    for name in ("3.105", "3.105-2"):
        (place / "set-aside" / name / "of_another_run").mkdir(parents=True)
    undo: Undo = []
    go_back(place, 110, undo)
    aside = sorted(folder.name for folder in (place / "set-aside").iterdir())
    assert aside == ["3.105", "3.105-2", "3.105-3"]
    undo[0]()
    assert names(place) == list(KEPT)


def test_a_step_that_is_not_kept_is_one_sentence(place: Path) -> None:
    with pytest.raises(UserError) as refused:
        go_back(place, 95, [])
    assert str(refused.value) == (
        f"--step 95: {place} holds no checkpoint of that step; kept are those of steps 90, 100, "
        "105, 110"
    )
    with pytest.raises(UserError, match="of that step; none is kept"):
        go_back(place / "none", 95, [])
    with pytest.raises(
        UserError, match=r"--step 95: the checkpoints are at s3://b/r, and only those in a folder"
    ):
        go_back("s3://b/r", 95, [])


def test_what_is_kept_names_the_command_where_up_started_the_run(place: Path) -> None:
    run_folder = place.parent
    assert KeptCheckpoints.find(run_folder, None) == KeptCheckpoints((90, 100, 105, 110), None)
    (run_folder / "up.json").write_text("{}")
    kept = KeptCheckpoints.find(run_folder, None)
    assert kept is not None
    assert kept.command == f"rollcast up --config {run_folder}/up.json --resume --step"
    assert KeptCheckpoints.find(run_folder, "s3://b") is None


@pytest.mark.parametrize(
    ("step", "arguments"), [(None, ("--resume",)), (7, ("--resume", "--step", "7"))]
)
def test_the_trainer_gets_the_step(
    step: int | None, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    """So that it refuses an older checkpoint if that one is torn."""
    config = parse_run_config(
        {"run": "r", "folder": str(tmp_path), "model": {"path": "m"}}, source="test"
    )
    specs = service_specs(config, tmp_path / "run.json", embed_redis=False, resume=True, step=step)
    (trainer,) = [spec for spec in specs if spec.name == "trainer"]
    for command in trainer.commands:
        assert command.arguments[5:] == arguments


def test_a_step_is_of_a_run_that_goes_on() -> None:
    assert refusal("up", "--config", "run.yaml", "--step", "3") == (
        "--step: names a checkpoint of a run that goes on; give --resume too"
    )
