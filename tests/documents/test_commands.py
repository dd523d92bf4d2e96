"""Every command in the documents is carried out by a test, or marked in the document as needing what no test has.

    rollcast COMMAND ...         here, in a folder with the curves, runs and run files that the pages speak of
    what starts services         by the test that ELSEWHERE names, in whose file the command's words stand
    python -m benchmarks.NAME    and lab.NAME, by whoever wrote its committed result: it takes minutes
    *Needs a cluster.*           by nobody here; the mark stands in the section, at the page's head, or behind `#`

The guides (tutorial, how-to) are carried out block by block in an empty folder. What is running text may leave options
out (`rollcast fit --json`): such a command and such options must be there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from documents.commands import leaves
from rollcast.cli.main import app
from rollcast.config.run import parse_run_config
from rollcast.config.yaml_loader import load_yaml
from tests.cli import command as command_line
from tests.documents.documented import LOG, NEEDS, PAGES, ROOT, Documented, commands, fenced
from tests.documents.elsewhere import ELSEWHERE, Elsewhere, carried_out_by, is_measured
from tests.documents.users_folder import lay_down, make_shared

UsageError = cast("type[Exception]", typer.BadParameter.__base__)
"""Of the click that typer brings: what is missing, what is unknown, and what is wrong."""
COMMANDS = dict(leaves(typer.main.get_command(app), "rollcast"))
DOCUMENTED = [item for page in PAGES if page.name not in LOG for item in commands(page)]
GUIDES = [ROOT / "docs" / "tutorial.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
GROUPS = {" ".join(name.split()[:count]) for name in COMMANDS for count in (1, 2)}
PLACEHOLDERS = ("...", "NAME", "COMMAND", "FILE")
PACKAGES = ("rollcast", "benchmarks", "lab", "testkit", "monitoring", "documents")
STARTERS = ("rollcast generator", "rollcast trainer", "rollcast forecaster")
"""They hand their options to another program."""


def name_of(words: tuple[str, ...]) -> str | None:
    """The command of `rollcast` that these words call."""
    return next((name for count in (3, 2) if (name := " ".join(words[:count])) in COMMANDS), None)


def is_whole(words: tuple[str, ...]) -> bool:
    """Whether the command line takes it as it is."""
    name = name_of(words)
    if name is None or "--help" in words or any(word in PLACEHOLDERS for word in words):
        return False
    if name in STARTERS:
        return True
    try:
        COMMANDS[name].make_context(name, list(words[len(name.split()) :]))
    except UsageError:
        return False
    return True


def is_done_here(command: Documented) -> bool:
    return command.words[0] == "rollcast" and is_whole(command.words)


DONE_HERE = {
    command.words: command
    for command in DOCUMENTED
    if is_done_here(command) and not command.needs and carried_out_by(command) is None
}
"""Each once, wherever it stands."""
MARKED = {command.words: command.needs for command in DOCUMENTED if command.needs}
"""What running text may speak of, where the mark stands once."""


def test_commands_are_found() -> None:
    assert len(DOCUMENTED) > 200
    assert {item.words[0] for item in DOCUMENTED} >= {"rollcast", "make", "helm", "kubectl", "docker", "curl", "wandb"}
    assert len(DONE_HERE) > 40


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in LOG], ids=lambda page: page.name)
def test_every_command_of_a_page_is_carried_out_or_marked(page: Path) -> None:
    assert [command.id for command in DOCUMENTED if command.page == page and not is_accounted_for(command)] == []


def is_accounted_for(command: Documented) -> bool:
    if command.words in DONE_HERE or carried_out_by(command) is not None or is_measured(command):
        return True
    needs = command.needs or (MARKED.get(command.words, "") if command.in_prose else "")
    if needs:
        return set(re.split(r", | and ", needs)) <= set(NEEDS)
    return command.words[0] == "rollcast" and command.in_prose and names_what_there_is(command.words)


def names_what_there_is(words: tuple[str, ...]) -> bool:
    """A command that is spoken of, with options that it has."""
    name = name_of(words)
    if name is None:
        return " ".join(words[:2]) in GROUPS or words[1] in ("--help", "--version", "COMMAND")
    known = {option for item in COMMANDS[name].params for option in (*item.opts, *item.secondary_opts)} | {"--help"}
    return {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("entry", ELSEWHERE, ids=lambda entry: entry.beginning)
def test_what_is_done_elsewhere_is_done_there(entry: Elsewhere) -> None:
    assert entry.missing() == []
    assert any(carried_out_by(command) is entry for command in DOCUMENTED), "no page has it any more"


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


def test_targets_of_make_and_modules_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for command in DOCUMENTED:
        if command.words[0] == "make":
            assert set(command.words[1:]) <= targets, command.id
        if command.words[:2] == ("python", "-m"):
            module = Path(*command.words[2].split("."))
            places = [ROOT / module, ROOT / "services" / module]
            if command.words[2].split(".")[0] in PACKAGES:
                found = [place for place in places if place.is_dir() or place.with_suffix(".py").is_file()]
                assert found, command.id


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_a_guide_is_carried_out(guide: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
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
    return make_shared(tmp_path_factory.mktemp("reader"), {file for words in DONE_HERE for file in curves_of(words)})


def curves_of(words: Iterable[str]) -> set[str]:
    """Names of CSV files, also behind the size of a model: `8B=b.csv`."""
    return {word.rpartition("=")[2] for word in words if word.endswith(".csv")}


def check_settings(text: str) -> None:
    """A part of a run file, or a whole one, is right beside the least that a run file says."""
    least: dict[str, Any] = {
        "run": "mine",
        "model": {"path": "none", "max_length": 16384},
        "recipe": {"length_control": {"kind": "none"}},
    }
    data = load_yaml(text, "the page")
    assert isinstance(data, dict)
    parse_run_config(json.loads(json.dumps(least)) | data, source="the page")
