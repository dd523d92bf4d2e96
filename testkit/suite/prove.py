"""`make proofs`: run the proofs that are due, or those that are named, and write tests/proofs.json.

    python -m testkit.suite.prove [--list] [NAME ...]    `all` = every proof, due or not

Commit the changed ledger together with nothing else: an entry names the commit that its proof
passed at.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from testkit.record import describe_machine
from testkit.suite.changes import NoHistoryError, changed_files, git
from testkit.suite.graph import load_graph
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import (
    LEDGER,
    Passed,
    Proof,
    due_proofs,
    read_ledger,
    with_imports,
    write_ledger,
)
from testkit.suite.pytest_call import CALL_REPORTS, NO_END, call_pytest, load_report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--list", action="store_true", help="print every proof and whether it is due; run none"
    )
    options = parser.parse_args(arguments)
    proofs_by_name = {proof.name: proof for proof in with_imports(PROOFS, load_graph())}
    if unknown := sorted({*options.names} - {*proofs_by_name, "all"}):
        print(
            f"error: {', '.join(unknown)}: no such proof; there are {', '.join(proofs_by_name)}",
            file=sys.stderr,
        )
        return 2
    ledger = read_ledger()
    due = due_proofs(proofs_by_name.values(), ledger)
    if options.list:
        for name, proof in proofs_by_name.items():
            minutes = f"{ledger[name].minutes:.1f} min" if name in ledger else "unknown"
            print(f"{name}: {proof.protects} ({minutes}; {due.get(proof, 'not due')})")
        return 0
    names = proofs_by_name if "all" in options.names else options.names
    proofs = [proofs_by_name[name] for name in names] or list(due)
    if not proofs:
        print("no proof is due")
        return 0
    return run_proofs(proofs)


def run_proofs(proofs: Sequence[Proof], end: float = NO_END) -> int:
    """Run the test files of these proofs in one call, write the ledger and name what stays due.
    Returns pytest's exit code.
    """
    for proof in proofs:
        print(f"proof {proof.name}: {proof.protects}", flush=True)
    names = ",".join(proof.name for proof in proofs)
    tests = [test for proof in proofs for test in proof.tests]
    report = CALL_REPORTS / "proofs.json"
    code = call_pytest(["--proofs", names, *tests], report, end)
    passed = record_passed(proofs, report)
    stays_due = "stays due: it failed, was cut off, or its files are not committed"
    for proof in proofs:
        outcome = "passed: tests/proofs.json says so" if proof.name in passed else stays_due
        print(f"proof {proof.name} {outcome}", flush=True)
    return code


def record_passed(proofs: Sequence[Proof], report: Path, ledger_file: Path = LEDGER) -> list[str]:
    """Write the proofs whose files all ran without a failure into the ledger; returns their names.

    A proof whose paths differ from the commit is not written: its entry would name a commit that it
    did not run at.
    """
    loaded = load_report(report)
    if loaded.get("stopped"):
        return []
    try:
        commit = git("rev-parse", "HEAD").strip()
        passed = {
            proof.name: _entry(proof, loaded["files"], commit)
            for proof in proofs
            if _has_passed(proof, loaded["files"])
            and not changed_files("HEAD", [*proof.paths, *proof.tests])
        }
    except NoHistoryError as error:
        print(f"tests/proofs.json is not written: {error}", file=sys.stderr)
        return []
    if passed:
        write_ledger({**read_ledger(ledger_file), **passed}, ledger_file)
    return sorted(passed)


def _has_passed(proof: Proof, files: dict[str, dict[str, float]]) -> bool:
    measured = [files[test] for test in proof.tests if test in files]
    return (
        len(measured) == len(proof.tests)
        and any(file["tests"] > file["skipped"] for file in measured)
        and not any(file["failed"] for file in measured)
    )


def _entry(proof: Proof, files: dict[str, dict[str, float]], commit: str) -> Passed:
    minutes = sum(files[test]["wall_seconds"] for test in proof.tests) / 60.0
    today = time.strftime("%Y-%m-%d", time.gmtime())
    return Passed(commit, describe_machine()["processor"], round(minutes, 2), today)


if __name__ == "__main__":
    sys.exit(main())
