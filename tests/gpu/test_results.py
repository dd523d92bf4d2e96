"""The folder of a proof: what counts as there, and that a file is whole or absent."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from testkit import record
from testkit.gpu.proof.order import Standing
from testkit.gpu.proof.results import keep, read_standing


def standing(folder: Path, *, again: bool = False, is_small: bool = True) -> Standing:
    return read_standing("head", folder, is_small=is_small, again=again)


@pytest.mark.parametrize(
    ("figures", "state"),
    [({}, "done"), ({"failed": "no memory"}, "failed"), ({"cut": "time was over"}, "cut")],
)
def test_a_part_is_known_by_its_file(tmp_path: Path, figures: dict[str, Any], state: str) -> None:
    assert standing(tmp_path) == Standing()
    keep("head", tmp_path, {"small": True, "seconds": 7.0, **figures})
    assert standing(tmp_path).state == state
    assert standing(tmp_path).seconds == 7.0
    assert standing(tmp_path, again=True).state == ("missing" if state == "failed" else state)


def test_tiny_shapes_and_real_ones_do_not_count_for_each_other(tmp_path: Path) -> None:
    keep("head", tmp_path, {"small": True, "seconds": 7.0})
    assert standing(tmp_path, is_small=False) == Standing()


@pytest.mark.parametrize(
    "text", ["", "{", '{"figures": {"sm', "[]", "null", '{"other": 1}', '{"figures": []}']
)
def test_a_foreign_or_torn_file_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "gpu-head.json").write_text(text)
    assert standing(tmp_path) == Standing()


def test_a_result_replaces_the_one_before_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("head", tmp_path, {"small": True, "seconds": 1.0})

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        keep("head", tmp_path, {"small": True, "seconds": 2.0})
    assert json.loads((tmp_path / "gpu-head.json").read_text())["figures"]["seconds"] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["gpu-head.json"]


def test_a_machine_without_git_names_the_commit_that_was_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(record, "PACKED_COMMIT", tmp_path / "COMMIT")
    assert record.commit() == ""
    (tmp_path / "COMMIT").write_text("0f9501b\n")
    assert record.commit() == "0f9501b"
