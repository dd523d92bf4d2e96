"""docs/reference/mistakes.md: every mistake of its tables is made, and told in the words that stand beside it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollcast.connections.http import listen
from rollcast.local.ports import free_port
from rollcast.tasks.sandbox import protections
from tests.cli import command
from tests.cli.mistakes import CAUTIONS, FIRST_MINUTES, MISTAKES, Mistake, is_as_told, prepared, told_by_the_page

TOLD = told_by_the_page()
CAUTION = "Cautions"
CASES = [(group, title, mistake) for group, titles in MISTAKES.items() for title, mistake in titles.items()]
IN_THE_SANDBOX = ("It opens a file in the sandbox", "It starts a thread in the sandbox")


@contextmanager
def port_of_another_run() -> Iterator[int]:
    """Taken as `rollcast up` takes it, by the kernel's own means: a test needs no second process for that."""
    port = free_port("127.0.0.1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mark:
        mark.bind(f"\0rollcast-port-127.0.0.1-{port}")
        yield port


def refusal(folder: Path, mistake: Mistake) -> str:
    """What is said, with the user's folder as the page has it."""
    with listen("127.0.0.1", 0, setting="port") as somebody, port_of_another_run() as kept:
        prepared(folder, mistake, somebody.getsockname()[1], kept)
        words = command.refusal(*mistake.command)
    return words.replace(str(folder), "/home/me").replace(os.path.realpath(folder), "/home/me")


def test_the_page_has_every_mistake_once_and_there_are_forty() -> None:
    titles = [*((group, title) for group, title, _ in CASES), *((CAUTION, title) for title in CAUTIONS)]
    assert sorted(one for one in TOLD if one[0] != FIRST_MINUTES) == sorted(titles)
    assert len(titles) >= 40


@pytest.mark.parametrize(("group", "title", "mistake"), CASES, ids=[f"{group}-{title}" for group, title, _ in CASES])
def test_a_mistake_is_told_as_the_page_says(
    group: str, title: str, mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if title in IN_THE_SANDBOX and protections.missing():
        pytest.skip(f"this machine lacks {' and '.join(protections.missing())}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JUDGE_TOKEN", raising=False)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    if mistake.lacks:
        monkeypatch.setitem(sys.modules, mistake.lacks, None)  # what Python has for a module that cannot be imported
    with open(os.devnull) as nothing:  # no terminal, whoever runs the tests
        monkeypatch.setattr(sys, "stdin", nothing)
        said = refusal(tmp_path, mistake)
    assert "\n" not in said, "one mistake, one sentence"
    assert is_as_told(said, TOLD[group, title]), said


def cautions() -> list[str]:
    """What a check that finds nothing wrong warns of."""
    checked = command.rollcast("config", "check", "run.yaml")
    assert checked.returncode == 0, checked.stderr
    return [line.removeprefix("caution: ") for line in checked.stdout.splitlines() if line.startswith("caution: ")]


@pytest.mark.parametrize(("title", "mistake"), CAUTIONS.items(), ids=list(CAUTIONS))
def test_a_check_warns_of_it_as_the_page_says(
    title: str, mistake: Mistake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, mistake)
    (said,) = cautions()
    assert is_as_told(said, TOLD[CAUTION, title]), said


def test_a_sound_run_file_has_no_caution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, Mistake())
    assert cautions() == []
