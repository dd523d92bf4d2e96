"""The locks of the cores that gradings use."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from rollcast.tasks.sandbox import cores


def test_a_core_is_free_again_though_a_child_that_was_forked_meanwhile_lives_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(cores, "usable_cores", lambda: {0})
    monkeypatch.setattr(cores, "LONGEST_WAIT_SECONDS", 0.5)
    with cores.one_core() as is_free:
        assert is_free
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        with cores.one_core() as is_free:
            assert is_free
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
