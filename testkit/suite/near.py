"""`make near`: the tests nearest to a change, in at most 40 seconds.

    python -m testkit.suite.near [--since COMMIT] [--list]

Test files are taken in turn by their distance from the changed files (`graph.py`), the quick ones
first, and by the words that they share with the change (`shared_words.py`), until the time is used
up. The others are named, and left to `make test`. On a slow or busy machine no further test begins
after 29 seconds, so that those under way end in time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testkit.suite.changes import ROOT, NoHistoryError, base_commit, changed_files
from testkit.suite.durations import load_durations, middle_seconds
from testkit.suite.graph import load_graph
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import tests_of_proofs
from testkit.suite.pytest_call import CALL_REPORTS, INTERRUPTED, TESTS_FAILED, load_report
from testkit.suite.shared_words import changed_text, in_turn, rank_by_words

BUDGET_SECONDS = 40.0
LAST_START_SECONDS = 29.0
"""No test begins later: those under way, and the end of the processes, take some seconds."""
START_SECONDS = 10.0
"""Imports and collection, out of the budget."""
PROCESSES = 2
MAX_NAMED_FILES = 8
CHECKED_BY_MAKE_CHECK = ("tests/test_types.py", "tests/test_layers.py")


@dataclass(frozen=True)
class Selection:
    """Test files that run now, and those that are left, both the nearest first."""

    files: tuple[str, ...]
    later_files: tuple[str, ...]


def select(
    distances: Mapping[str, int],
    durations: Mapping[str, float],
    rooms: frozenset[str],
    word_ranks: Mapping[str, int],
) -> Selection:
    """Take files while the time is enough: in turn the next by distance (those of the changed rooms
    before others, the quick ones first) and the next by shared words.
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
            find_room(file) not in rooms,
            file in proof_files,
            durations.get(file, middle),
            file,
        ),
    )
    by_words = sorted(
        by_distance, key=lambda file: (find_room(file) not in rooms, word_ranks[file])
    )
    for file in in_turn(by_words, by_distance):
        seconds = durations.get(file, middle)
        if seconds <= seconds_left:
            seconds_left -= seconds
            files.append(file)
        else:
            later_files.append(file)
    return Selection(tuple(files), tuple(later_files))


def find_room(file: str) -> str:
    """`scaling` of services/rollcast/scaling/law/curve.py and of tests/scaling/test_curve.py."""
    parts = file.split("/")
    if parts[:2] == ["services", "rollcast"]:
        return parts[2] if len(parts) > 3 else ""
    return parts[1] if parts[0] == "tests" and len(parts) > 2 else parts[0]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--since", metavar="COMMIT", help="what changed since this commit; the default is printed"
    )
    parser.add_argument("--list", action="store_true", help="print the test files and run none")
    options = parser.parse_args(arguments)
    start = time.time()
    try:
        commit, rule = (options.since, "named") if options.since else base_commit()
        changed = changed_files(commit)
    except NoHistoryError as error:
        print(f"error: {error}; name a commit: make near SINCE=COMMIT", file=sys.stderr)
        return 2
    print(f"{len(changed)} files changed since {commit[:8]} ({rule})")
    durations = load_durations()
    distances = load_graph().reaching_tests(changed)
    texts = {file: (ROOT / file).read_text(encoding="utf-8") for file in distances}
    word_ranks = rank_by_words(changed_text(commit, changed), texts)
    selection = select(distances, durations, frozenset(map(find_room, changed)), word_ranks)
    print(f"{len(selection.files)} test files run now")
    if selection.later_files:
        num_left = len(selection.later_files)
        print(
            f"{num_left} test files that reach the change are left to `make test`: "
            f"{named(selection.later_files)}"
        )
    if options.list or not selection.files:
        print(*selection.files, sep="\n")
        return 0
    return run_until(
        start + LAST_START_SECONDS,
        selection.files,
        ["--hypothesis-profile=core"],
        CALL_REPORTS / "near.json",
    )


def run_until(stop_at: float, files: Sequence[str], options: Sequence[str], report: Path) -> int:
    """Run test files in this order. After stop_at, in seconds of the epoch, no test begins, and the
    files of which none did are named. Returns the exit code.
    """
    report.unlink(missing_ok=True)
    limits = ["--keep-order", "--stop-at", str(stop_at), "--suite-report", str(report)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(PROCESSES)]
    code = subprocess.run([*command, *limits, *options, *files], check=False).returncode
    loaded = load_report(report)
    if code != INTERRUPTED or not loaded["stopped"]:
        return code
    later = [file for file in files if file not in loaded["files"]]
    print(
        f"the time is over; {len(later)} test files were not begun and are left to `make test`: "
        f"{named(later)}"
    )
    return TESTS_FAILED if loaded["failed_tests"] else 0


def named(files: Sequence[str]) -> str:
    """The first of these files, and how many more there are."""
    more = len(files) - MAX_NAMED_FILES
    text = ", ".join(files[:MAX_NAMED_FILES]) or "none"
    return f"{text} and {more} more" if more > 0 else text


if __name__ == "__main__":
    sys.exit(main())
