"""`make durations`: run every test and write tests/durations.json; `--from-last` reads the last
calls' reports.
"""

from __future__ import annotations

import argparse
import sys

from testkit.record import describe_machine
from testkit.suite.durations import save_durations
from testkit.suite.pytest_call import CALL_REPORTS, call_pytest


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--from-last", action="store_true", help="run nothing: the reports of the last calls serve"
    )
    options = parser.parse_args()
    code = 0
    reports = [CALL_REPORTS / "core.json", CALL_REPORTS / "proofs.json"]
    if not options.from_last:
        reports = [CALL_REPORTS / "all.json"]
        code = call_pytest([], reports[0])
    if code == 0:
        save_durations([report for report in reports if report.exists()], describe_machine())
    return code


if __name__ == "__main__":
    sys.exit(main())
