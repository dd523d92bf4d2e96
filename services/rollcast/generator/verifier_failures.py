"""Verifiers that give no verdict: the first failure in words, the rest as a count; in the log and in the run folder."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.runfolder.verifier_failures import VerifierFailure, write_failures
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

log = get_logger()


class VerifierFailures:
    """The failures of one generator's verifiers."""

    def __init__(self, exporter: Exporter, file: Path | None) -> None:
        self._exporter = exporter
        self._file = file
        self._known: dict[str, VerifierFailure] = {}

    def note(self, verifier: str, sentence: str) -> None:
        """Count a grading without a verdict. Logs the first, then whenever their number has doubled."""
        self._exporter.add(names.VERIFIER_FAILURES, verifier=verifier)
        known = self._known.get(verifier, VerifierFailure(verifier, sentence, 0))
        known = self._known[verifier] = replace(known, count=known.count + 1)
        if known.count & (known.count - 1):  # not a power of two
            return
        log.error(
            "a verifier gives no verdict; its completions are left out",
            verifier=verifier,
            first=known.sentence,
            so_far=known.count,
        )
        if self._file is not None:
            with suppress(UserError):  # a pod may see no run folder; its log says the same
                write_failures(self._file, list(self._known.values()))
