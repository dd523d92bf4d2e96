"""The tests of wire 2 as a part: what is kept of each."""

from __future__ import annotations

from testkit.gpu.wire_tests import parse_report

REPORT = """<testsuites><testsuite>
<testcase name="test_a" time="1.5" /><testcase name="test_b" time="0.1"><failure message="assert 1
 == 2">trace</failure></testcase><testcase name="test_c" time="0"><skipped message="no card" /></testcase>
</testsuite></testsuites>"""  # noqa: E501


def test_each_test_is_a_row_with_its_reason() -> None:
    assert parse_report(REPORT) == [
        {"test": "test_a", "seconds": 1.5, "passed": True, "reason": None},
        {"test": "test_b", "seconds": 0.1, "passed": False, "reason": "assert 1 == 2"},
        {"test": "test_c", "seconds": 0.0, "passed": False, "reason": None},
    ]
