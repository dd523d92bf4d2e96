"""A proof: files that are made to take time or memory, each as large as a reader takes it, and
damaged ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.curves.bounded import CURVE, Bounded
from tests.curves.formats.damaged_files import FILES as SOUND_FILES
from tests.curves.formats.damaged_files import check_damage
from tests.curves.formats.hostile_files import hostile_files

FILES = hostile_files(1.0)


@pytest.mark.parametrize("name", FILES)
def test_what_is_made_to_harm_is_a_curve_or_one_sentence(
    name: str, tmp_path: Path, bounded: Bounded
) -> None:
    file, make = FILES[name]
    make(tmp_path / file)
    assert (tmp_path / file).stat().st_size < 64 << 20
    (outcome,) = bounded.outcomes(tmp_path / file)
    assert outcome.startswith((CURVE, str(tmp_path))), outcome


def test_many_sound_rows_are_read(tmp_path: Path, bounded: Bounded) -> None:
    rows = "".join(
        f'{{"step": {n}, "accuracy": {n / 1e7}, "note": "a{n % 7}", "b": {{"c": 1}}}}\n'
        for n in range(300_000)
    )
    (tmp_path / "a.jsonl").write_text(rows)
    (tmp_path / "b.csv").write_text(
        "step,accuracy,x\n" + "".join(f"{n},{n / 1e7},\n" for n in range(1_000_000))
    )
    assert bounded.outcomes(tmp_path / "a.jsonl", tmp_path / "b.csv") == [
        f"{CURVE} 300000",
        f"{CURVE} 1000000",
    ]


@pytest.mark.parametrize("index", range(0, len(SOUND_FILES), 8))
def test_damage_is_a_curve_or_one_sentence(index: int, tmp_path: Path, bounded: Bounded) -> None:
    check_damage(SOUND_FILES[index : index + 8], 12, index, tmp_path, bounded)
