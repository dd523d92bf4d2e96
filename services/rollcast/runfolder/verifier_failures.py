"""Failures of each generator's verifiers: one small file for each generator under `failures/` in
the run folder.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rollcast.runfolder.files import FAILURES
from rollcast.runfolder.records import read_record
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
        try:
            # A few sentences for each verifier: a longer file is not a generator's.
            by_name = read_record(file, dict[str, list[VerifierFailure]], max_bytes=1 << 20)
            failures = by_name["failures"]
        except (OSError, ValueError, KeyError):
            continue
        for failure in failures:
            first = failures_by_verifier.get(failure.verifier, replace(failure, count=0))
            total = replace(first, count=first.count + failure.count)
            failures_by_verifier[failure.verifier] = total
    return list(failures_by_verifier.values())
