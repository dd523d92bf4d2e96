"""The verifier `math` on real reference answers: `python -m benchmarks.math_verifier`.

Every reference of GSM8K's and MATH-500's test sets, read by the ready mappings, in five surface
forms must be accepted; 1,000 wrong answers must be rejected. Both go through `grade`, as in a run.
The sets are read from the folder that ROLLCAST_SHARED_DATA names; without it nothing is measured,
and the command says so. Writes results/math_verifier.json.
"""

from __future__ import annotations

import json
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

from rollcast.config.datasets import MappingName
from rollcast.tasks.grading import grade
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import GradeStatus
from testkit.record import write_result
from testkit.tasks.math_answers import FORMS, data_folder, references, wrong_answers

SETS = ("gsm8k", "math-500")
WRONG_ANSWERS = 1_000
SHOWN = 10


def main() -> int:
    folder = data_folder()
    if folder is None:
        print("ROLLCAST_SHARED_DATA names no folder with tasks/: SKIPPED, nothing was measured.")
        return 0
    figures: dict[str, Any] = {}
    failures = 0
    for name in SETS:
        answers = references(folder, cast(MappingName, name))
        accepted: dict[str, Any] = {}
        for form, written in FORMS.items():
            cases = [(written(str(json.loads(reference))), reference) for reference in answers]
            statuses, seconds = _graded(cases)
            refused = [
                reference
                for reference, status in zip(answers, statuses, strict=True)
                if status != "ok"
            ]
            accepted[form] = {
                "accepted": len(answers) - len(refused),
                "of": len(answers),
                "milliseconds_each": round(1e3 * seconds / len(answers), 2),
                "refused": refused[:SHOWN],
            }
            failures += len(refused)
            print(
                f"{name:9} {form:21} {len(answers) - len(refused):5} of {len(answers)} accepted "
                f"{refused[:3] or ''}"
            )
        rng = random.Random(name)
        wrong = wrong_answers(
            [str(json.loads(reference)) for reference in answers], WRONG_ANSWERS // len(SETS), rng
        )
        statuses, _ = _graded(
            [(FORMS["boxed"](item.answer), json.dumps(item.reference)) for item in wrong]
        )
        missed = [
            f"{item.answer} for {item.reference}: {status}"
            for item, status in zip(wrong, statuses, strict=True)
            if status != "wrong"
        ]
        failures += len(missed)
        print(
            f"{name:9} {'wrong answers':21} {len(wrong) - len(missed):5} of {len(wrong)} rejected "
            f"{missed[:3] or ''}"
        )
        figures[name] = {
            "references": accepted,
            "wrong": {
                "rejected": len(wrong) - len(missed),
                "of": len(wrong),
                "missed": missed[:SHOWN],
            },
        }
    print(f"written: {write_result('math_verifier', figures)}")
    return 1 if failures else 0


def _graded(cases: list[tuple[str, str]]) -> tuple[list[GradeStatus], float]:
    """Statuses in order, and wall seconds, by the threads a generator grades with."""
    with closing(Sandbox()) as sandbox, ThreadPoolExecutor(2) as threads:
        sandbox.start("math")
        started = time.perf_counter()
        statuses = list(
            threads.map(lambda case: grade("math", *case, sandbox=sandbox).status, cases)
        )
    return statuses, time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
