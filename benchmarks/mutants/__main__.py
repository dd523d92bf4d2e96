"""Do the core tests and the due proofs notice what an earlier suite noticed?

    python -m benchmarks.mutants draw --seed 1 --tree FOLDER [--number 60] [--weights FILE]
    python -m benchmarks.mutants run --seed 1 --tree FOLDER --suite NAME [--minutes 10]
                                     [--from 0] [--to 60]

`draw` changes one operator, constant or branch of the earlier commit in FOLDER for each mutant, in
lines that are still here, and writes results/mutants-SEED.json. Rooms of services/ are drawn by
weight: the tests that they lost, as the JSON object of --weights says (default: all rooms alike).
`run` applies one mutant after the other to the clean checkout in FOLDER and runs the test files
that reach it, the nearest and those that share its words first, until one fails: of the core and of
the proofs that the change makes due; of a commit without this suite all files. It puts the line
back and runs that test again: one that fails then, too, notices nothing and is left out. A mutant
that is not noticed within the minutes is recorded as such, with the files that were run. The
figures of each suite stand under its name; a call goes on where the last one ended.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testkit.record import RESULTS, ROOT, describe_machine
from testkit.suite.changes import git
from testkit.suite.first_failure import TIME_IS_OVER, first_failure
from testkit.suite.mutation import Mutant, draw_mutants

SELECT = """
import json, sys
from pathlib import Path
from testkit.suite.durations import load_durations, middle_seconds
from testkit.suite.graph import load_graph
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import with_imports
from testkit.suite.shared_words import in_turn, rank_by_words
file, line, has_proofs = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True"
durations = load_durations()
graph = load_graph()
proofs = with_imports(PROOFS, graph)
not_due = [
    proof
    for proof in proofs
    if not any(file == path or file.startswith(path + "/") for path in proof.paths)
]
left_out = {test for proof in not_due if has_proofs for test in proof.tests}
distances = graph.reaching_tests([file])
middle = middle_seconds(durations)
chosen = [test for test in distances if test not in left_out and test != "tests/test_types.py"]
by_distance = sorted(chosen, key=lambda test: (distances[test], durations.get(test, middle)))
lines = Path(file).read_text().splitlines()
change = "\\n".join([file, *lines[max(0, line - 10) : line + 10]])  # most functions are not longer
ranks = rank_by_words(change, {test: Path(test).read_text() for test in chosen})
print(json.dumps(in_turn(sorted(chosen, key=ranks.__getitem__), by_distance)))
"""
FIRST_FILES = 8
"""Test files in the first call of pytest. Each later call takes twice as many: most mutants are
noticed nearby, and a call starts two processes."""
SECONDS_A_MINUTE = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["draw", "run"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--suite")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int, default=10_000)
    options = parser.parse_args()
    result = RESULTS / f"mutants-{options.seed}.json"
    if options.tree is None:
        parser.error("name --tree FOLDER")
    if options.action == "draw":
        rooms = [
            folder.name for folder in (ROOT / "services" / "rollcast").iterdir() if folder.is_dir()
        ]
        weights = (
            json.loads(options.weights.read_text())
            if options.weights
            else dict.fromkeys(rooms, 1.0)
        )
        mutants = draw_mutants(
            options.tree.resolve(), weights, options.number, options.seed, other_root=ROOT
        )
        figures = {
            "seed": options.seed,
            "weights": weights,
            "mutants": [asdict(mutant) for mutant in mutants],
        }
        result.write_text(
            json.dumps({"machine": describe_machine(), "figures": figures}, indent=1) + "\n"
        )
        return 0
    if options.suite is None:
        parser.error("run: name --suite NAME")
    for number in range(options.first, options.last):
        record = json.loads(result.read_text())
        mutants = record["figures"]["mutants"]
        if number >= len(mutants):
            break
        if options.suite not in mutants[number]:
            outcome = run_mutant(
                mutant_of(mutants[number]), options.tree.resolve(), options.minutes
            )
            print(number, mutants[number]["file"], outcome["outcome"], outcome["by"], flush=True)
            record = json.loads(result.read_text())
            record["figures"]["mutants"][number][options.suite] = outcome
            result.write_text(json.dumps(record, indent=1) + "\n")
    return 0


def mutant_of(record: dict[str, Any]) -> Mutant:
    return Mutant(record["file"], record["line"], record["before"], record["after"])


def run_mutant(mutant: Mutant, tree: Path, minutes: float) -> dict[str, Any]:
    """Whether the tests of a checkout notice a mutant, which of them, and after how long."""
    start = time.monotonic()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tree / "services"), str(tree)])}
    has_proofs = bool(git("ls-files", "testkit/suite", root=tree))
    if not has_proofs:  # an earlier commit: its tests are selected as this one selects
        shutil.copytree(ROOT / "testkit" / "suite", tree / "testkit" / "suite", dirs_exist_ok=True)
    selected = subprocess.run(
        [sys.executable, "-c", SELECT, mutant.file, str(mutant.line), str(has_proofs)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    files = json.loads(selected.stdout)
    options = ["--hypothesis-profile=core"] if has_proofs else []
    try:
        mutant.apply(tree)
    except ValueError as error:
        return _outcome("the line is gone", str(error), start, 0, len(files))
    num_run = 0
    try:
        while num_run < len(files):
            seconds_left = minutes * SECONDS_A_MINUTE - (time.monotonic() - start)
            chunk = files[num_run : 2 * num_run + FIRST_FILES]
            by: str | None = TIME_IS_OVER
            if seconds_left > 0:
                by = first_failure(chunk, options, tree, environment, seconds_left)
            if by == TIME_IS_OVER:
                return _outcome("not noticed in time", "", start, num_run, len(files))
            if by is not None:
                git("checkout", "--quiet", "--", mutant.file, root=tree)
                test_only = [by] if "::" in by else chunk
                if (
                    first_failure(test_only, options, tree, environment, minutes * SECONDS_A_MINUTE)
                    != by
                ):
                    return _outcome("noticed", by, start, num_run, len(files))
                if "::" not in by:
                    return _outcome("fails without the mutant, too", by, start, num_run, len(files))
                options.append(f"--deselect={by}")
                mutant.apply(tree)
                continue
            num_run += len(chunk)
        return _outcome("not noticed", "", start, num_run, len(files))
    finally:
        git("checkout", "--quiet", "--", mutant.file, root=tree)


def _outcome(outcome: str, by: str, start: float, files_run: int, files: int) -> dict[str, Any]:
    seconds = round(time.monotonic() - start, 1)
    return {
        "outcome": outcome,
        "by": by,
        "seconds": seconds,
        "files_run": files_run,
        "files": files,
    }


if __name__ == "__main__":
    sys.exit(main())
