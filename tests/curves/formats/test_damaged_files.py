"""Sound files of every format, damaged at random: each is a curve or one sentence, in a bounded
process.
"""

from __future__ import annotations

from pathlib import Path

from tests.curves.bounded import Bounded
from tests.curves.formats.damaged_files import FILES, check_damage


def test_damage_is_a_curve_or_one_sentence(tmp_path: Path, bounded: Bounded) -> None:
    """Two copies of each file; more of them: test_whole_hostile_files.py."""
    check_damage(FILES, 2, 0, tmp_path, bounded)
