"""What environments name and is not there: one sentence each, before anything is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.openenv import OpenEnvEnvironment
from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.environments.tool_set import McpServer, ToolSet
from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.environments.kinds import lookup
from rollcast.local.checks.environment_files import check_environment_files
from testkit.openenv_sessions import stand_in

TOKEN = "ROLLCAST_TEST_TOKEN"


def environments(folder: Path, *, are_there: bool) -> tuple[EnvironmentSettings, ...]:
    corpus = folder / "corpus.jsonl"
    functions = folder / "own.py"
    if are_there:
        corpus.write_text('{"text": "a"}\n')
        functions.write_text("def double(n: int) -> int: ...\n")
    program = sys.executable if are_there else "/no/such/program"
    tools = ToolSet(
        name="tools",
        tools=("search", f"{functions}:double"),
        corpus=corpus,
        mcp=(
            McpServer(name="files", command=(program,)),
            McpServer(name="web", url="http://nowhere/mcp", token_variable=TOKEN),
        ),
    )
    return (
        tools,
        OpenEnvEnvironment(name="server", url="http://nowhere", interpreter=Path(program)),
        HarnessEnvironment(name="agent", command=(program, "agent.py")),
        HarnessEnvironment(name="elsewhere"),
    )


@pytest.mark.parametrize(
    ("interpreter", "reason"),
    [
        (
            "/no/such/python",
            (
                "cannot be started (No such file or directory); give the python of a virtual "
                "environment"
            ),
        ),
        ("/bin/false", "is not Python 3.11 or later; give the python of a virtual environment"),
        (sys.executable, "has no verifiers; install verifiers==0.4.0 there"),
    ],
)
def test_the_interpreter_of_verifiers_is_asked(interpreter: str, reason: str) -> None:
    environment = VerifiersEnvironment(name="rooms", taskset="rooms", interpreter=Path(interpreter))
    with pytest.raises(UserError) as error:
        check_environment_files(Tasks(environments=(environment,)))
    assert str(error.value) == f"tasks.environments.0.interpreter = {interpreter}: {reason}"


@pytest.mark.parametrize(
    ("factory", "reason"),
    [
        (
            "no_such_agent.of_mine:make",
            "interpreter = {python}: has no package 'no_such_agent'; install it there",
        ),
        ("./no_such_agent.py:make", "factory ./no_such_agent.py:make: there is no file "),
    ],
)
def test_the_factory_of_harness_sessions_is_looked_for(
    factory: str, reason: str, tmp_path: Path
) -> None:
    python = stand_in(tmp_path)
    environment = OpenEnvSessionEnvironment(name="coder", factory=factory, interpreter=python)
    with pytest.raises(UserError) as error:
        check_environment_files(Tasks(environments=(environment,)))
    assert str(error.value).startswith(f"tasks.environments.0.{reason.format(python=python)}")


def test_the_interpreter_of_harness_sessions_is_asked() -> None:
    environment = OpenEnvSessionEnvironment(
        name="coder", factory="json:loads", interpreter=Path(sys.executable)
    )
    with pytest.raises(UserError) as error:
        check_environment_files(Tasks(environments=(environment,)))
    said = (
        f"tasks.environments.0.interpreter = {sys.executable}: has no openenv; install "
        "openenv==0.10.0 there"
    )
    assert str(error.value) == said


def test_what_is_there_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN, "secret")
    check_environment_files(Tasks(environments=environments(tmp_path, are_there=True)))


def test_each_missing_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "find_spec", lambda name: None)
    with pytest.raises(UserError) as error:
        check_environment_files(Tasks(environments=environments(tmp_path, are_there=False)))
    expected = {
        "tasks.environments.0.tools.1 ": "there is no file",
        "tasks.environments.0.tools: ": "needs the package bm25s",
        "tasks.environments.0.corpus ": "cannot be read",
        "tasks.environments.0.mcp: ": "needs the package mcp",
        "tasks.environments.0.mcp.0.command ": "there is no such program",
        "tasks.environments.0.mcp.1.token_variable: ": (
            f"the environment variable {TOKEN}, which is to hold its token"
        ),
        "tasks.environments.1.interpreter ": "in which openenv is installed",
        "tasks.environments.2.command.0 ": "there is no such program",
    }
    sentences = str(error.value).splitlines()
    assert len(sentences) == len(expected)
    for sentence, (beginning, part) in zip(sentences, expected.items(), strict=True):
        assert sentence.startswith(beginning)
        assert part in sentence


@pytest.mark.parametrize("content", ["", None])
def test_a_corpus_that_is_empty_or_a_folder_is_refused(content: str | None, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    if content is None:
        corpus.mkdir()
    else:
        corpus.write_text(content)
    with pytest.raises(
        UserError, match=r"tasks\.environments\.0\.corpus = .*corpus\.jsonl: cannot be read"
    ):
        check_environment_files(
            Tasks(environments=(ToolSet(name="t", tools=("search",), corpus=corpus),))
        )
