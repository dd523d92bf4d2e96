"""Failures of each generator's verifiers: one small file for each generator under `failures/` in
the run folder.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollcast.runfolder.files import FAILURES
from rollcast.runfolder.writing import make_folder, replace_json


@dataclass(frozen=True, slots=True)
class VerifierFailure:
    verifier: str
    sentence: str
    """The first failure, with file and line if they are known."""
    count: int
    """Gradings without a verdict so far, up to the last time that their number had doubled."""


def failures_file(folder: Path, generator: str) -> Path:
    """The file that a generator of the run writes."""
    return folder / FAILURES / f"{generator}.json"


def write_failures(file: Path, failures: Sequence[VerifierFailure]) -> None:
    """Raises UserError if the disk refuses."""
    make_folder(file.parent)
    replace_json(file, {"failures": [asdict(failure) for failure in failures]})


def read_failures(folder: Path) -> list[VerifierFailure]:
    """The failures of all generators, one for each verifier. Files of another form are skipped."""
    failures_by_verifier: dict[str, VerifierFailure] = {}
    for file in sorted((folder / FAILURES).glob("*.json")):
        for failure in _read(file):
            earlier_failure = failures_by_verifier.get(failure.verifier)
            failures_by_verifier[failure.verifier] = (
                failure
                if earlier_failure is None
                else VerifierFailure(
                    failure.verifier,
                    earlier_failure.sentence,
                    earlier_failure.count + failure.count,
                )
            )
    return list(failures_by_verifier.values())


def _read(file: Path) -> list[VerifierFailure]:
    try:
        with file.open("rb") as stream:
            # The program writes less; a larger file is damaged
            listed: Any = json.loads(stream.read(1 << 20))["failures"]
        return [
            VerifierFailure(
                str(failure["verifier"]), str(failure["sentence"]), int(failure["count"])
            )
            for failure in listed
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
