"""Wrong run files: each is answered in our words by what reads run files, and some by the commands
and the chart.

tests/chart/test_check.py asks the chart.
"""

from __future__ import annotations

import os
import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from typer.testing import CliRunner

from rollcast.cli import up
from rollcast.cli.main import app
from rollcast.config.errors import UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.config.spelling import list_setting_names
from rollcast.runfolder import files
from rollcast.runfolder.folder import NEWEST_FORMAT, lock_folder
from tests.cli import command
from tests.config.wrong_run_files import NAMES, RIGHT, WRONG, changed

ASKED = slice(7, None, 30)
"""Those that the commands are given too, whose sentences are the loader's. The first has two of
them."""
IN_TABLE = (
    "tests/config/wrong_run_files.yaml lists other sentences for this change: correct one of them"
)
PYDANTIC = re.compile(
    r"Input should|Extra inputs|Field required|input tag|validation error|pydantic|discriminator"
)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the tests were called: the demo's run may be there, begun with other settings."""
    monkeypatch.chdir(tmp_path)


def written(folder: Path, change: dict[str, Any]) -> Path:
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(changed(RIGHT, change)))
    return path


def said(*arguments: str) -> list[str]:
    """What the command, run in this process, refuses its run file with: one line a mistake, without
    the file's name.
    """
    return sentences_of(command.refusal(*arguments))


def sentences_of(text: str) -> list[str]:
    return [line.partition("run.yaml: ")[2] or line for line in text.splitlines()]


def test_there_are_enough_and_no_two_alike() -> None:
    assert len(WRONG) >= 60
    assert len({str(entry["change"]) for entry in WRONG}) == len(WRONG)


def test_what_they_change_is_right(tmp_path: Path) -> None:
    assert load_run_config(written(tmp_path, {}), to_start=True).run == "demo"


@pytest.mark.parametrize("entry", WRONG, ids=NAMES)
def test_the_loader_says_it(entry: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        load_run_config(written(tmp_path, entry["change"]), to_start=True)
    assert sentences_of(str(refused.value)) == entry["says"], IN_TABLE


@pytest.mark.parametrize("entry", WRONG[ASKED], ids=NAMES[ASKED])
def test_both_commands_say_it(
    entry: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a wrong run file was started")

    monkeypatch.setattr(up, "run_and_conclude", started)
    file = str(written(tmp_path, entry["change"]))
    assert said("config", "check", file, "--elsewhere") == entry["says"], IN_TABLE
    here = said("config", "check", file)  # files that are not there may be named as well
    assert here[: len(entry["says"])] == entry["says"], IN_TABLE
    assert said("up", "--config", file) == here


@pytest.mark.parametrize("words", [("config", "check"), ("up", "--config")], ids=" ".join)
def test_as_programs_they_end_with_2_and_those_words_alone(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    entry = WRONG[ASKED][0]
    file = written(tmp_path, entry["change"])
    done = command.process(*words, file)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: " + "".join(f"{file}: {sentence}\n" for sentence in entry["says"])


ANYTHING: list[Any] = [
    None, True, "x", "", "1", -1, 0, 1.5, 1e300, 10**400, float("nan"), [], [1], ["x"] * 70, [None],
    [{}], [[1, 2]],
    {}, {"a": 1}, {"kind": [1]}, {"kind": "x"}, "a" * 300, "\x00",
]  # fmt: skip


def refusal(settings: Any) -> str:
    try:
        parse_run_config(settings, source="test", to_start=True)
    except UserError as error:
        return str(error)
    return ""


def test_no_setting_is_refused_in_anybody_elses_words() -> None:
    """Every setting against every kind of value."""
    told = 0
    for path in list_setting_names(RunConfig):
        for value in ANYTHING:
            change: Any = value
            for name in reversed(path.split(".")):
                change = {name: change}
            sentences = refusal(changed(RIGHT, change)).splitlines()
            told += len(sentences)
            for sentence in sentences:
                assert sentence.startswith("test: ")
                assert not PYDANTIC.search(sentence)
                assert "cannot be used" not in sentence, "words of its own are missing"
    assert told > 3_000


def wrong_files(folder: Path) -> list[tuple[dict[str, Any], str]]:
    rows = folder / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"prompt": "{number}", "answer": "1"}}\n' for number in range(2_100))
    )
    broken = folder / "broken.jsonl"
    broken.write_text('{"prompt": "1", "answer": "1"}\n{"prompt": "2"\n')
    dataset = {"kind": "jsonl", "name": "rows", "path": str(rows)}
    return [
        ({"model": {"path": str(folder / "none")}}, "model.path = "),
        (
            {"tasks": {"dataset": dataset | {"path": str(folder / "none.jsonl")}}},
            "tasks.dataset.path = ",
        ),
        ({"tasks": {"dataset": dataset | {"path": str(broken)}}}, "broken.jsonl, line 2: "),
        (
            {
                "tasks": {"dataset": dataset, "evaluation": {"num_prompts": 100}},
                "recipe": {"prompts_per_step": 5_000},
            },
            "recipe.prompts_per_step = 5000: there are only 2000 training prompts",
        ),
        (
            {"tasks": {"dataset": dataset | {"verifier": "mathh"}}},
            "tasks.dataset.verifier = 'mathh'",
        ),
        ({"generator": {"tensor_parallel": 2_000}}, "generator.tensor_parallel = 2000"),
        ({"generator": {"cpu": 100_000}}, "generator.cpu = 100000"),
    ]


@pytest.mark.parametrize("index", range(7))
def test_of_wrong_files_both_say_the_same_and_a_check_for_elsewhere_what_it_left_out(
    index: int, tmp_path: Path
) -> None:
    change, named = wrong_files(tmp_path)[index]
    if "tensor_parallel" in str(change) and Path("/proc/driver/nvidia/gpus").is_dir():
        pytest.skip("this machine has a GPU")
    file = str(written(tmp_path, changed(on_its_own(tmp_path), change)))
    sentences = said("config", "check", file)
    assert len(sentences) == 1
    assert named in sentences[0]
    assert said("up", "--config", file) == sentences
    assert not (tmp_path / "runs").exists(), "nothing was begun"
    elsewhere = CliRunner().invoke(app, ["config", "check", file, "--elsewhere"])
    assert elsewhere.exit_code == 0
    assert "not checked: model, data, verifiers, certificates, disk and devices" in elsewhere.stdout


def on_its_own(folder: Path, **more: Any) -> dict[str, Any]:
    """Settings of a run that could start here, its folder beside the file."""
    ports = {"redis": {"port": 0}, "rpc": {"port": 0}, "forecaster": {"http_port": 0}}
    return {"folder": str(folder / "runs"), **ports, **more}


def used(folder: Path, state: str) -> AbstractContextManager[None]:
    """The run's folder, as it was left or is held."""
    run = folder / "runs" / RIGHT["run"]
    run.mkdir(parents=True)
    (run / files.EVALUATIONS).touch()
    (run / files.FORMAT).write_text(f'{{"format": {NEWEST_FORMAT + (state == "newer")}}}')
    before = {"tasks": {"evaluation": {"num_prompts": 7}}}
    write_resolved(
        load_run_config(written(folder, on_its_own(folder, **before))), run / files.UP_FILE
    )
    return lock_folder(run) if state == "held" else nullcontext()


@pytest.mark.parametrize(
    ("state", "options", "sentence"),
    [
        ("left", [], "holds a run already; continue it with --resume"),
        ("held", [], "process {this} is running it; stop that one"),
        ("held", ["--resume"], "process {this} is running it; stop that one"),
        (
            "newer",
            [],
            (
                f"is written in format {NEWEST_FORMAT + 1}, this Rollcast knows {NEWEST_FORMAT} at "
                "most"
            ),
        ),
        (
            "left",
            ["--resume"],
            "--resume: tasks.evaluation.num_prompts 7 -> 16: the curve is measured",
        ),
    ],
)
def test_of_a_folder_that_cannot_be_used_both_say_the_same(
    state: str, options: list[str], sentence: str, tmp_path: Path
) -> None:
    sentence = sentence.replace(
        "{this}", str(os.getpid())
    )  # not in the name of the test, which is each process's own
    with used(tmp_path, state):
        file = str(
            written(tmp_path, on_its_own(tmp_path, tasks={"evaluation": {"num_prompts": 16}}))
        )
        (told,) = said("config", "check", file, *options)
        assert sentence in told
        assert said("up", "--config", file, *options) == [told]


def test_a_check_of_a_resume_names_what_differs_and_one_for_elsewhere_looks_at_no_folder(
    tmp_path: Path,
) -> None:
    with used(tmp_path, "left"):
        change = on_its_own(tmp_path, tasks={"evaluation": {"num_prompts": 7}}, budget={"steps": 9})
        file = str(written(tmp_path, change))
        resumed = command.rollcast("config", "check", file, "--resume")
        assert resumed.returncode == 0, resumed.stderr
        assert "resumed with another setting: budget.steps " in resumed.stdout
        elsewhere = command.rollcast("config", "check", file, "--elsewhere")
        assert elsewhere.returncode == 0
        assert "; the run's folder" in elsewhere.stdout
        assert (
            "leave it out"
            in command.rollcast("config", "check", file, "--elsewhere", "--resume").stderr
        )


def test_every_kind_of_mistake_is_told_at_once(tmp_path: Path) -> None:
    """Of settings, between settings, and in files that right settings name."""
    rows = {"kind": "jsonl", "name": "rows", "path": str(tmp_path / "none.jsonl")}
    change = {
        "seeds": 1,
        "recipe": {"temperature": 0, "rollouts_per_prompt": 512},
        "model": {"path": str(tmp_path / "none")},
        "tasks": {"dataset": rows},
    }
    file = str(written(tmp_path, change))
    sentences = said("config", "check", file)
    assert [sentence.split()[0] for sentence in sentences] == [
        "recipe.temperature",
        "seeds",
        "recipe.rollouts_per_prompt",
        "model.path",
        "tasks.dataset.path",
    ]
    assert said("up", "--config", file) == sentences


def test_data_of_wrong_settings_is_not_read(tmp_path: Path) -> None:
    """A range that is upside down would end in a traceback where the data is made."""
    small = {"path": str(tmp_path / "model")}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"max_position_embeddings": 64}')
    settings = {"run": "r", "budget": {"steps": 1}, "model": small}
    settings["tasks"] = {"dataset": {"kind": "countdown", "numbers": [4, 3]}}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(settings))
    sentences = said("config", "check", str(file))
    assert sentences[0] == (
        "tasks.dataset.numbers = [4, 3] is wrong: must be [low, high] with low <= high; swap them"
    )


def test_broken_rules_and_wrong_files_are_told_at_once(tmp_path: Path) -> None:
    file = str(
        written(
            tmp_path,
            {
                "model": {"path": str(tmp_path / "none"), "max_length": 64},
                "budget": {"steps": None},
            },
        )
    )
    sentences = said("config", "check", file)
    assert [sentence.split()[0] for sentence in sentences] == [
        "model.max_length",
        "budget",
        "model.path",
    ]
    assert said("up", "--config", file) == sentences
