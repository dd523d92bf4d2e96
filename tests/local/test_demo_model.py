"""The demo's base model without its training; test_trained_demo_model.py trains a tiny one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.local.demo.base_model import BaseModel, ensure_base_model

TINY = BaseModel(steps=3, batch=4, measured_prompts=4)


def test_other_settings_are_another_model() -> None:
    assert BaseModel().key != BaseModel(noise=0.3).key != BaseModel(noise=0.3, seed=1).key


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").touch()
    monkeypatch.setenv("ROLLCAST_CACHE", str(tmp_path / "cache"))
    with pytest.raises(UserError, match="ROLLCAST_CACHE"):
        ensure_base_model(TINY, lambda _: None)


def with_training(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The training's process runs `program` instead, with the same arguments."""
    stand_in = folder / "stand-in" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setenv("ROLLCAST_CACHE", str(folder / "cache"))
    monkeypatch.setattr(sys, "executable", str(stand_in))


def test_a_training_that_talks_much_is_heard_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys; sys.stderr.write('x' * (1 << 20)); print(0.5); print('loading ...'); "
        "print(1.0); os.makedirs(sys.argv[-1])"
    )
    with_training(tmp_path, monkeypatch, program)
    shares: list[float] = []
    assert ensure_base_model(TINY, shares.append).is_dir()
    assert shares == [0.5, 1.0]


def test_a_training_that_hangs_is_ended_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_training(tmp_path, monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr("rollcast.local.demo.base_model.TRAINING_DEADLINE_SECONDS", 1.0)
    with pytest.raises(
        UserError, match=r"training of the demo's base model failed \(exit code -9\)"
    ):
        ensure_base_model(TINY, lambda _: None)
