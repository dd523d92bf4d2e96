"""Failures of a run's verifiers, as lines for whoever watches it: the first in words, then with a
count.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from rollcast.runfolder.event_log import RunEvent
from rollcast.runfolder.verifier_failures import read_failures

_LINE = re.compile(
    r"verifier (?P<name>.+?) (gives no verdict: |gave no verdict on \d+ completions so far, )"
)


class VerifierNews:
    """Says each failure's first sentence once, and how many there are whenever their number has
    doubled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reported_counts: dict[str, int] = {}

    def lines(self) -> list[str]:
        """The failures since the last call, one line each."""
        lines = []
        for failure in read_failures(self._folder):
            reported_count = self._reported_counts.get(failure.verifier, 0)
            if not reported_count:
                sentence = f"verifier {failure.verifier} gives no verdict: {failure.sentence}"
                lines.append(f"{sentence}; completions without a grade are left out")
            elif failure.count >= 2 * reported_count:
                count_text = f"{failure.count} completions so far"
                sentence = (
                    f"verifier {failure.verifier} gave no verdict on {count_text}, first "
                    f"{failure.sentence}"
                )
                lines.append(f"{sentence}; completions without a grade are left out")
            else:
                continue
            self._reported_counts[failure.verifier] = failure.count
        return lines


def newest_of_each(events: Sequence[RunEvent]) -> list[RunEvent]:
    """Without lines on a verifier that a later one has taken the place of: it says all that they
    do.
    """
    verifier_names: set[str] = set()
    newest_events = []
    for event in reversed(events):
        if line_match := _LINE.match(event.line):
            if line_match["name"] in verifier_names:
                continue
            verifier_names.add(line_match["name"])
        newest_events.append(event)
    return newest_events[::-1]
