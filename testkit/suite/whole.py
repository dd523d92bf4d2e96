"""`make test`: the core tests, then the proofs that are due and fit into the time.

    python -m testkit.suite.whole [ARGUMENTS OF PYTEST]

SUITE_END (seconds of the epoch) bounds the whole: proofs that do not fit are named and stay due;
core tests that do not fit fail it. Without it every due proof is run. `.ci/run` sets it.
SUITE_PROOFS=0 leaves all proofs to `make proofs`.
"""

from __future__ import annotations

import os
import sys
import time

from testkit.suite.again_alone import show_record
from testkit.suite.durations import load_durations
from testkit.suite.graph import load_graph
from testkit.suite.proof_table import PROOFS
from testkit.suite.proofs import (
    due_proofs,
    proofs_that_fit,
    read_ledger,
    tests_of_proofs,
    with_imports,
)
from testkit.suite.prove import run_proofs
from testkit.suite.pytest_call import (
    CALL_REPORTS,
    INTERRUPTED,
    NO_END,
    PROCESSES,
    SECONDS_KEPT_FREE,
    call_pytest,
)

CORE_BUDGET_SECONDS = 900.0
"""What the core tests may take on two quiet cores with AVX-512. The time fails no run: it is
printed."""


def main() -> int:
    end = float(os.environ.get("SUITE_END", NO_END))
    show_record()
    start = time.monotonic()
    code = call_pytest(["--proofs", "core", *sys.argv[1:]], CALL_REPORTS / "core.json", end)
    core_seconds = time.monotonic() - start
    print(
        f"core tests: {core_seconds:.0f} s; their budget is {CORE_BUDGET_SECONDS:.0f} s", flush=True
    )
    if code != 0 or os.environ.get("SUITE_PROOFS") == "0":
        return code
    ledger = read_ledger()
    due = due_proofs(with_imports(PROOFS, load_graph()), ledger)
    seconds_a_minute = 60.0 * slowness(core_seconds) / PROCESSES
    fitting = proofs_that_fit(due, ledger, end - SECONDS_KEPT_FREE - time.time(), seconds_a_minute)
    for proof, reason in due.items():
        if proof not in fitting:
            print(
                f"proof {proof.name} is due ({reason}) and does not fit into the time: "
                "`make proofs` runs it",
                flush=True,
            )
    if not fitting:
        return 0
    code = run_proofs(fitting, end)
    return 0 if code == INTERRUPTED else code


def slowness(core_seconds: float) -> float:
    """How many times longer the core tests took than in the recorded run; at least 1."""
    proof_files = tests_of_proofs(PROOFS)
    recorded = sum(seconds for file, seconds in load_durations().items() if file not in proof_files)
    return max(1.0, core_seconds * PROCESSES / recorded) if recorded else 1.0


if __name__ == "__main__":
    sys.exit(main())
