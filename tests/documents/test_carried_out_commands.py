"""Commands of the documents do what they are there for, in a folder with what the pages speak of.

The guides (tutorial, how-to) are carried out block by block in an empty folder. test_commands.py
says what accounts for the commands that are not among these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.run import parse_run_config
from rollcast.config.sweep import SweepFile
from rollcast.config.yaml_loader import load_yaml
from tests.cli import command as command_line
from tests.documents.accounted import DONE_HERE
from tests.documents.documented import ROOT, Documented, commands, fenced
from tests.documents.elsewhere import carried_out_by
from tests.documents.users_folder import lay_down, make_shared

GUIDES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]


@pytest.mark.parametrize("command", DONE_HERE.values(), ids=lambda command: command.text[:80])
def test_a_command_does_what_it_is_there_for(
    command: Documented, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends well, says something, and writes the files that it names."""
    lay_down(tmp_path, shared)
    monkeypatch.chdir(tmp_path)
    if command.words[:2] == ("rollcast", "init"):
        Path(command.words[2]).unlink(missing_ok=True)
    done = command_line.rollcast(*command.words[1:])
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    for option, file in zip(command.words, command.words[1:], strict=False):
        assert option != "--plot" or Path(file).stat().st_size > 1_000


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_is_carried_out(
    guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path
) -> None:
    """In a folder with what a reader is said to have."""
    lay_down(tmp_path, shared)
    for made in ("sums.yaml", "first.yaml"):
        (tmp_path / made).unlink()
    monkeypatch.chdir(tmp_path)
    at = {command.line: command for command in commands(guide) if not command.in_prose}
    run = tmp_path / "runs" / "sums"
    if any(command.text == "rollcast up --config sums.yaml" for command in at.values()):
        run.unlink()  # it is there once the page has started it
    for block in fenced(guide):
        if block.title:
            (tmp_path / block.title).write_text(block.text)
        if block.language == "yaml":
            check_settings(block.text)
        if block.language == "python":
            compile(block.text, f"{guide.name}:{block.line}", "exec")
        for offset in range(block.text.count("\n")) if block.language == "sh" else ():
            if command := at.get(block.line + offset):
                carry_out(command, tmp_path)
                if command.words[:2] == ("rollcast", "up") and not run.exists():
                    run.symlink_to(shared / "runs" / "sums")


def carry_out(command: Documented, folder: Path) -> None:
    options = dict(zip(command.words, command.words[1:], strict=False))
    assert "--config" not in options or (folder / options["--config"]).exists(), command.id
    if command.words[0] == "python" and command.words[1].endswith(".py"):
        exec(compile((folder / command.words[1]).read_text(), command.words[1], "exec"), {})
    elif not command.needs and carried_out_by(command) is None:
        done = command_line.rollcast(*command.words[1:])
        assert done.returncode == 0, f"{command.id}: {done.stderr}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_shared(
        tmp_path_factory.mktemp("reader"),
        {file for words in DONE_HERE for file in curves_of(words)},
    )


def curves_of(words: Iterable[str]) -> set[str]:
    """Names of CSV files, also behind the size of a model: `8B=b.csv`."""
    return {word.rpartition("=")[2] for word in words if word.endswith(".csv")}


def check_settings(text: str) -> None:
    """A sweep file, or a part of a run file beside the least that a run file says."""
    least: dict[str, Any] = {
        "run": "mine",
        "model": {"path": "none", "max_length": 16384},
        "recipe": {"length_control": {"kind": "none"}},
    }
    data = load_yaml(text, "the page")
    assert isinstance(data, dict)
    if "sweep" in data:
        SweepFile.model_validate(data)
        return
    parse_run_config(json.loads(json.dumps(least)) | data, source="the page")
