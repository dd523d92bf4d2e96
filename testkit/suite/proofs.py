"""Proofs: test files that matter only when their subject changes.

A proof is due if anything below its paths, one of its test files, or a file that these import
(`with_imports`) differs from the commit at which it last passed. That commit, the machine and the
minutes are in tests/proofs.json. A proof without an entry is due, and one whose commit is not in
the history.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testkit.suite.changes import ROOT, NoHistoryError, changed_files, is_ancestor
from testkit.suite.graph import ReachGraph

LEDGER = ROOT / "tests" / "proofs.json"


@dataclass(frozen=True)
class Proof:
    """Test files that are run together when something that they protect has changed."""

    name: str
    protects: str
    """One sentence for who reads what a change made due."""
    paths: tuple[str, ...]
    """Files and folders whose change makes it due."""
    tests: tuple[str, ...]
    """Its test files."""


def with_imports(proofs: Iterable[Proof], graph: ReachGraph) -> list[Proof]:
    """The proofs, each with the files that its tests import among its paths: the table names its
    subject alone.
    """
    return [
        replace(proof, paths=(*proof.paths, *sorted(graph.imported_files(proof.tests))))
        for proof in proofs
    ]


@dataclass(frozen=True)
class Passed:
    """The last time that a proof passed."""

    commit: str
    machine: str
    minutes: float
    """Wall time of its tests, added up: three processes take about a third of it."""
    date: str


def read_ledger(path: Path = LEDGER) -> dict[str, Passed]:
    """Name of a proof -> the last time that it passed."""
    if not path.exists():
        return {}
    return {name: Passed(**entry) for name, entry in json.loads(path.read_text()).items()}


def write_ledger(passed: Mapping[str, Passed], path: Path = LEDGER) -> None:
    """Replace the ledger."""
    entries = {name: asdict(entry) for name, entry in sorted(passed.items())}
    path.write_text(json.dumps(entries, indent=1) + "\n")


def why_due(proof: Proof, ledger: Mapping[str, Passed], root: Path = ROOT) -> str | None:
    """Why a proof has to be run; None if nothing that it protects has changed since it passed."""
    entry = ledger.get(proof.name)
    if entry is None:
        return "never passed"
    if not is_ancestor(entry.commit, root):
        return f"passed at {entry.commit[:8]}, which is not in the history"
    try:
        changed = changed_files(entry.commit, [*proof.paths, *proof.tests], root)
    except NoHistoryError as error:
        return str(error)
    if not changed:
        return None
    others_text = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{changed[0]}{others_text} changed since {entry.commit[:8]}"


def due_proofs(proofs: Iterable[Proof], ledger: Mapping[str, Passed]) -> dict[Proof, str]:
    """The proofs that are due, each with the reason."""
    return {proof: reason for proof in proofs if (reason := why_due(proof, ledger)) is not None}


def proofs_that_fit(
    due: Iterable[Proof],
    ledger: Mapping[str, Passed],
    seconds_left: float,
    seconds_per_minute: float,
) -> list[Proof]:
    """The due proofs that a time is enough for, the shortest first.

    seconds_per_minute: seconds that this machine takes for a minute of the ledger. A proof that
    never passed is taken for `UNKNOWN_MINUTES`.
    """
    fitting = []
    for proof in sorted(due, key=lambda item: _minutes(item, ledger)):
        seconds_left -= _minutes(proof, ledger) * seconds_per_minute
        if seconds_left < 0:
            break
        fitting.append(proof)
    return fitting


UNKNOWN_MINUTES = 5.0


def _minutes(proof: Proof, ledger: Mapping[str, Passed]) -> float:
    return ledger[proof.name].minutes if proof.name in ledger else UNKNOWN_MINUTES


def tests_of_proofs(proofs: Collection[Proof]) -> frozenset[str]:
    """Test files of these proofs, relative to the root."""
    return frozenset(test for proof in proofs for test in proof.tests)
