"""A mistake of a first hour is made, and what is said of it compared with the page."""

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
from tests.cli import command
from tests.cli.mistakes import Mistake, is_as_told, prepared


def check_is_told(
    sentence: str, mistake: Mistake, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Make it in the user's `folder`; `sentence`: the page's."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("JUDGE_TOKEN", raising=False)
    for name, value in mistake.environment.items():
        monkeypatch.setenv(name, value)
    if mistake.lacks:
        monkeypatch.setitem(
            sys.modules, mistake.lacks, None
        )  # what Python has for a module that cannot be imported
    with open(os.devnull) as nothing:  # no terminal, whoever runs the tests
        monkeypatch.setattr(sys, "stdin", nothing)
        said = _refusal(folder, mistake)
    assert "\n" not in said, said
    assert is_as_told(said, sentence), said


def _refusal(folder: Path, mistake: Mistake) -> str:
    """What is said, with the user's folder as the page has it."""
    with listen("127.0.0.1", 0, setting="port") as somebody, _port_of_another_run() as kept:
        prepared(folder, mistake, somebody.getsockname()[1], kept)
        words = command.refusal(*mistake.command)
    return words.replace(str(folder), "/home/me").replace(os.path.realpath(folder), "/home/me")


@contextmanager
def _port_of_another_run() -> Iterator[int]:
    """Taken as `rollcast up` takes it, by the kernel's own means: a test needs no second process
    for that.
    """
    port = free_port("127.0.0.1")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as mark:
        mark.bind(f"\0rollcast-port-127.0.0.1-{port}")
        yield port
