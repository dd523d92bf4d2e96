"""`make near`: the tests nearest to a change, in at most 40 seconds.

    python -m testkit.suite.near [--since COMMIT] [--list]

Test files are taken in turn by their distance from the changed files (`graph.py`), the quick ones first, and by the
words that they share with the change (`shared_words.py`), until the time is used up. The others are named, and left to
`make test`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testkit.suite.changes import ROOT, NoHistoryError, base_commit, changed_files
from testkit.suite.durations import load_durations, middle_seconds
from testkit.suite.graph import load_graph
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import tests_of_proofs
from testkit.suite.shared_words import changed_text, in_turn, rank_by_words

BUDGET_SECONDS = 40.0
START_SECONDS = 10.0
"""Imports and collection, out of the budget."""
PROCESSES = 2
MAX_NAMED_FILES = 8
CHECKED_BY_MAKE_CHECK = ("tests/test_types.py", "tests/test_layers.py")


@dataclass(frozen=True)
class Selection:
    """Test files that run now, and those that are left, both the nearest first."""

    files: tuple[str, ...]
    left: tuple[str, ...]


def select(
    distances: Mapping[str, int], durations: Mapping[str, float], rooms: frozenset[str], word_ranks: Mapping[str, int]
) -> Selection:
    """Take files while the time is enough: in turn the next by distance (those of the changed rooms before others, the
    quick ones first) and the next by shared words.
    """
    middle = middle_seconds(dict(durations))
    seconds_left = (BUDGET_SECONDS - START_SECONDS) * PROCESSES
    files = []
    later_files = []
    proof_files = tests_of_proofs(PROOFS)
    by_distance = sorted(
        (file for file in distances if file not in CHECKED_BY_MAKE_CHECK),
        key=lambda file: (
            distances[file],
            room_of(file) not in rooms,
            file in proof_files,
            durations.get(file, middle),
            file,
        ),
    )
    by_words = sorted(by_distance, key=lambda file: (room_of(file) not in rooms, word_ranks[file]))
    for file in in_turn(by_words, by_distance):
        seconds = durations.get(file, middle)
        if seconds <= seconds_left:
            seconds_left -= seconds
            files.append(file)
        else:
            later_files.append(file)
    return Selection(tuple(files), tuple(later_files))


def room_of(file: str) -> str:
    """`scaling` of services/rollcast/scaling/law/curve.py and of tests/scaling/test_curve.py."""
    parts = file.split("/")
    if parts[:2] == ["services", "rollcast"]:
        return parts[2] if len(parts) > 3 else ""
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else parts[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--since", metavar="COMMIT", help="what changed since this commit; the default is printed")
    parser.add_argument("--list", action="store_true", help="print the test files and run none")
    options = parser.parse_args(arguments)
    try:
        if options.since:
            commit = options.since
            rule = "named"
        else:
            commit, rule = base_commit()
        changed = changed_files(commit)
    except NoHistoryError as error:
        print(f"error: {error}; name a commit: make near SINCE=COMMIT", file=sys.stderr)
        return 2
    print(f"{len(changed)} files changed since {commit[:8]} ({rule})")
    durations = load_durations()
    distances = load_graph().reaching_tests(changed)
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in distances}
    word_ranks = rank_by_words(changed_text(commit, changed), texts)
    selection = select(distances, durations, frozenset(map(room_of, changed)), word_ranks)
    print(f"{len(selection.files)} test files run now")
    if selection.left:
        named = ", ".join(selection.left[:MAX_NAMED_FILES])
        more = f" and {len(selection.left) - MAX_NAMED_FILES} more" if len(selection.left) > MAX_NAMED_FILES else ""
        print(f"{len(selection.left)} test files that reach the change are left to `make test`: {named}{more}")
    if options.list or not selection.files:
        print(*selection.files, sep="\n")
        return 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(PROCESSES),
        "--hypothesis-profile=core",
        *selection.files,
    ]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
