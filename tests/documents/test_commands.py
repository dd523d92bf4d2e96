"""Every command in the documents is one that there is, with options that there are; what the guides say is done.

The guides (tutorial, how-to) are carried out block by block in an empty folder. What starts a whole system there is
started by tests/system; its options are read here, and what it leaves behind is laid down instead.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from documents.commands import leaves
from rollcast.cli.main import app
from rollcast.config.run import parse_run_config
from rollcast.config.yaml_loader import load_yaml
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.runfolder.writing import append_line
from testkit.forecaster.recorded_run import record
from testkit.tiny_model import make_tiny_model
from tests.documents.documented import LOG, PAGES, ROOT, Documented, commands, fenced

ROOT_COMMAND = typer.main.get_command(app)
COMMANDS = dict(leaves(ROOT_COMMAND, "rollcast"))
DOCUMENTED = [item for page in PAGES if page.name not in LOG for item in commands(page)]
GUIDES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
MARKED = ("needs a GPU", "needs a cluster", "needs docker")
PASSED_ON = ("rollcast generator", "rollcast trainer", "rollcast forecaster")
"""They hand their options to another program."""
DONE_ELSEWHERE = {
    "rollcast up": "tests/system/test_up.py",
    "rollcast try": "tests/local/test_trial.py",
    "rollcast show": "tests/cli/test_show.py",
    "rollcast ablate": "tests/system/test_ablate.py",
    "rollcast model arithmetic": "tests/local/test_base_model.py",
    "make setup": "Makefile",
    "pip install": "tests/cli/test_base_install.py",
    "python -m rollcast.loggers": "tests/loggers/test_service.py",
}
"""Beginning of a command of a guide -> what carries it out."""


def is_parsed(words: tuple[str, ...]) -> str:
    """The name of the command that these words give. Raises as the command line does where they are none."""
    name = next((" ".join(words[:count]) for count in (3, 2) if " ".join(words[:count]) in COMMANDS), None)
    assert name is not None, f"there is no such command: {' '.join(words[:3])}"
    if name not in PASSED_ON and "--help" not in words:
        COMMANDS[name].make_context(name, list(words[len(name.split()) :]))
    return name


def test_commands_are_found() -> None:
    assert len(DOCUMENTED) > 60
    assert {item.words[0] for item in DOCUMENTED} >= {"rollcast", "make", "helm", "kubectl"}


@pytest.mark.parametrize("command", [c for c in DOCUMENTED if c.words[0] == "rollcast"], ids=lambda c: c.id)
def test_a_command_of_the_documents_is_one(command: Documented) -> None:
    is_parsed(tuple(word for word in command.words if word != "..."))


def test_targets_of_make_and_modules_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in DOCUMENTED:
        if command.words[0] == "make":
            assert {word for word in command.words[1:] if "=" not in word} <= targets, command.id
        if command.words[:2] == ("python", "-m"):
            module = Path(*command.words[2].split("."))
            places = [ROOT / module, ROOT / "services" / module]
            if command.words[2].split(".")[0] in ("rollcast", "benchmarks", "testkit", "monitoring", "documents"):
                found = [place for place in places if place.is_dir() or place.with_suffix(".py").is_file()]
                assert found, command.id


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_is_carried_out(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: Path) -> None:
    """In an empty folder but for two curves and a run file that a reader is said to have."""
    monkeypatch.chdir(tmp_path)
    lay_down(tmp_path, tiny)
    at = {command.line: command for command in commands(guide)}
    for block in fenced(guide):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        if block.language == "yaml":
            check_settings(block.text, tmp_path)
        if block.language == "python":
            compile(block.text, f"{guide.name}:{block.line}", "exec")
        for offset in range(block.text.count("\n")) if block.language == "sh" else ():
            if command := at.get(block.line + offset):
                carry_out(command, tmp_path)


def carry_out(command: Documented, folder: Path) -> None:
    text = " ".join(command.words)
    if command.remark.startswith(MARKED):
        return
    by = next((test for beginning, test in DONE_ELSEWHERE.items() if text.startswith(beginning)), None)
    if by is not None:
        assert (ROOT / by).exists()
        if command.words[0] == "rollcast":
            is_parsed(command.words)
            options = dict(zip(command.words, command.words[1:], strict=False))
            assert "--config" not in options or (folder / options["--config"]).exists()
        return
    if command.words[0] == "python":
        exec(compile((folder / command.words[1]).read_text(), command.words[1], "exec"), {})
        return
    assert command.words[0] == "rollcast", f"{command.id}: nothing carries it out; mark it as one of {MARKED}"
    result = CliRunner().invoke(app, list(command.words[1:]))
    assert result.exit_code == 0, f"{command.id}: {result.output}"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "arithmetic"
    make_tiny_model(folder)
    return folder


def lay_down(folder: Path, model: Path) -> None:
    """What `rollcast up` and the reader's own work would have left."""
    (folder / "models").mkdir()
    (folder / "models" / "arithmetic").symlink_to(model)
    rows = [json.dumps({"prompt": f"{number}+7=", "answer": str(number + 7)}) for number in range(40)]
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "my-run.yaml").write_text(
        "run: mine\nmodel: {path: models/arithmetic, dtype: float32}\nbudget: {steps: 3}\n"
        "recipe: {length_control: {kind: none}}\n"
    )
    for number, name in enumerate(("sums", "sums-2")):
        run = folder / "runs" / name
        run.mkdir(parents=True)
        for point in record(20, seed=number):
            evaluation = EvaluationRecord(1, point.step, point.pass_rate, point.compute / 10, standard_error=0.01)
            append_line(run / "evaluations.jsonl", as_json(evaluation))
        (run / "run.json").write_text(json.dumps({"run": name}))
    for number, name in enumerate("ab"):
        table = "".join(f"{1000 * p.compute},{p.pass_rate}\n" for p in record(30, seed=number) if p.compute)
        (folder / f"{name}.csv").write_text(f"gpu_hours,accuracy\n{table}")
    (folder / "curve.csv").write_text((folder / "a.csv").read_text())


def check_settings(text: str, folder: Path) -> None:
    """A part of a run file, or a whole one, is right beside the least that a run file says."""
    least: dict[str, Any] = {
        "run": "mine",
        "model": {"path": "none", "max_length": 16384},
        "recipe": {"length_control": {"kind": "none"}},
    }
    data = load_yaml(text, "the page")
    assert isinstance(data, dict)
    parse_run_config(least | data, source="the page")
