"""The tests of wire 2 as a part: which run, and what is kept of each."""

from __future__ import annotations

import subprocess
import sys

from testkit.gpu.wire_tests import CHOSEN, FILES, rows_of
from tests.only_these import ROOT

REPORT = """<testsuites><testsuite>
<testcase name="test_a" time="1.5" /><testcase name="test_b" time="0.1"><failure message="assert 1
 == 2">trace</failure></testcase><testcase name="test_c" time="0"><skipped message="no card" /></testcase>
</testsuite></testsuites>"""


def test_each_test_is_a_row_with_its_reason() -> None:
    assert rows_of(REPORT) == [
        {"test": "test_a", "seconds": 1.5, "passed": True, "reason": None},
        {"test": "test_b", "seconds": 0.1, "passed": False, "reason": "assert 1 == 2"},
        {"test": "test_c", "seconds": 0.0, "passed": False, "reason": None},
    ]


def test_the_faults_are_chosen_and_no_test_with_two_workers_on_one_card() -> None:
    command = [sys.executable, "-m", "pytest", *FILES, "-k", CHOSEN, "--collect-only", "-q", "-p", "no:cacheprovider"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120).stdout
    for name in ("killed_in_mid_broadcast", "frozen_in_mid_broadcast", "trainer_killed", "one_wrong_bit"):
        assert name in listed
    assert "arrives_whole_over_three_lanes" not in listed
