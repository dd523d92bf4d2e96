"""What Rollcast relies on in vLLM or works around is in one table, checked against the release that
is pinned.
"""

from __future__ import annotations

import re
from pathlib import Path

import rollcast.generator.vllm

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "services" / "rollcast"
FOLDER = SERVICES / "generator" / "vllm"
TABLE = rollcast.generator.vllm.__doc__ or ""
IMPORT = re.compile(r"^\s*(from|import) vllm\b", re.MULTILINE)


def rows() -> list[list[str]]:
    """The cells of each row, without the head."""
    lines = [line for line in TABLE.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_file_is_in_the_table_and_every_row_names_a_file() -> None:
    paths = [path.relative_to(FOLDER) for path in FOLDER.rglob("*.py") if path.stem != "__init__"]
    files = {str(path.with_suffix("")) for path in paths}
    assert {file for _, file, _ in rows()} == files


def test_every_row_says_until_which_release() -> None:
    assert all(
        re.fullmatch(r"relied on|no release yet|\d+\.\d+(\.\d+)?", until) for _, _, until in rows()
    )


def test_the_table_was_checked_against_the_pinned_release() -> None:
    pinned = re.search(
        r"^vllm==(\S+)", (ROOT / "requirements" / "generator-cuda.txt").read_text(), re.MULTILINE
    )
    assert pinned is not None
    assert f"checked against vLLM {pinned[1]};" in TABLE, "check every row against the new release"


def test_no_other_room_imports_vllm() -> None:
    importing = {path.parent for path in SERVICES.rglob("*.py") if IMPORT.search(path.read_text())}
    assert importing == {FOLDER, FOLDER / "cpu"}
