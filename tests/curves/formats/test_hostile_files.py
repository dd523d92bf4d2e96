"""Files that are made to take time or memory: each gets a curve or one sentence, in a process of
little of both.

Here they are small enough to be made and read in a moment; test_whole_hostile_files.py has them in
their full size.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.curves.bounded import CURVE, Bounded
from tests.curves.formats.hostile_files import (
    TABLES,
    field,
    history,
    hostile_files,
    pieces,
    sqlite,
    wandb,
)

SHARE = 0.03
FILES = hostile_files(SHARE)
AT_ONCE = 12
"""Files that one process reads."""


@pytest.mark.parametrize("first", range(0, len(FILES), AT_ONCE))
def test_what_is_made_to_harm_is_a_curve_or_one_sentence(
    first: int, tmp_path: Path, bounded: Bounded
) -> None:
    paths = []
    for place, (file, make) in enumerate(list(FILES.values())[first : first + AT_ONCE]):
        folder = tmp_path / str(place)
        folder.mkdir()
        make(folder / file)
        paths.append(folder / file)
    for path, outcome in zip(paths, bounded.outcomes(*paths), strict=True):
        assert outcome.startswith((CURVE, str(path))), outcome


def test_a_store_that_is_used_as_it_should_be_is_read(tmp_path: Path, bounded: Bounded) -> None:
    sqlite(*TABLES)(tmp_path / "mlflow.db")
    assert bounded.outcomes(tmp_path / "mlflow.db") == [f"{CURVE} 2"]


def test_a_pipe_in_a_folder_that_nobody_writes_to_is_not_waited_for(
    tmp_path: Path, bounded: Bounded
) -> None:
    os.mkfifo(tmp_path / "run-1.wandb")
    (outcome,) = bounded.outcomes(tmp_path)
    assert "holds no evaluations.jsonl" in outcome


def test_pieces_of_a_long_record_are_joined(tmp_path: Path, bounded: Bounded) -> None:
    """And those without a beginning change nothing."""
    record = (
        history("_step", "7")
        + history("note", json.dumps("x" * 100_000))
        + history("accuracy", "0.5")
    )
    record = field(2, b"".join(field(1, field(1, name) + field(16, value)) for name, value in (
        (b"_step", b"7"), (b"note", json.dumps("x" * 100_000).encode()), (b"accuracy", b"0.5"),
    )))  # fmt: skip
    one = field(
        2,
        field(1, field(1, b"_step") + field(16, b"8"))
        + field(1, field(1, b"accuracy") + field(16, b"0.6")),
    )
    wandb((4, b"x"), *pieces(record), (3, b"x"), (4, b"x"), (1, one))(tmp_path / "run.wandb")
    assert bounded.outcomes(tmp_path / "run.wandb") == [f"{CURVE} 2"]
