"""What a run's verifiers fail at, as lines for whoever watches it: the first failure in words, then a count."""

from __future__ import annotations

from pathlib import Path

from rollcast.runfolder.verifier_failures import read_failures


class VerifierNews:
    """Says each failure's first sentence once, and how many there are whenever their number has doubled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._told: dict[str, int] = {}

    def lines(self) -> list[str]:
        """What is new since the last call."""
        lines = []
        for failure in read_failures(self._folder):
            told = self._told.get(failure.verifier, 0)
            if not told:
                said = f"verifier {failure.verifier} gives no verdict: {failure.sentence}"
                lines.append(f"{said}; what it does not grade is left out")
            elif failure.count >= 2 * told:
                lines.append(f"verifier {failure.verifier} gave no verdict on {failure.count} completions so far")
            else:
                continue
            self._told[failure.verifier] = failure.count
        return lines
