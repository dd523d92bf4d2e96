"""The inputs of a kind that were tried so far, with the findings: a file for each kind."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testkit.fuzz.outcome import Finding

NUMBER_BYTES = 8
NO_INPUT = b"\xff" * NUMBER_BYTES
"""The worker tries no input."""


def now_file(folder: Path, kind: str) -> Path:
    """Holds the number of the input that is being tried."""
    return folder / f"{kind}.now"


@dataclass
class State:
    """One kind's. FOLDER/KIND/ has the first input of each finding."""

    folder: Path
    kind: str
    seed: int
    next: int = 0
    counted: int = 0
    """Inputs beyond the first check."""
    seconds: float = 0.0
    """Processor time of all inputs."""
    longest_seconds: float = 0.0
    coverage: dict[str, float] | None = None
    """By module: lines of functions that the first inputs have reached, as a share."""
    findings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By name: the sentence, the first input's number, and how many there were."""
    killers: list[int] = field(default_factory=list)
    """Inputs that ended the process."""

    @classmethod
    def read(cls, folder: Path, kind: str, seed: int) -> State:
        """A new one if nothing was tried yet. Raises SystemExit for one of another seed."""
        file = folder / f"{kind}.json"
        if not file.exists():
            return cls(folder, kind, seed)
        state = cls(folder, kind, **json.loads(file.read_text()))
        if state.seed != seed:
            raise SystemExit(f"{file}: is of --seed {state.seed}; give it, or another --folder")
        return state

    def write(self) -> None:
        fields = asdict(self)
        del fields["folder"], fields["kind"]
        unfinished = self.folder / f"{self.kind}.json.unfinished"
        unfinished.write_text(json.dumps(fields, indent=1) + "\n")
        unfinished.replace(self.folder / f"{self.kind}.json")

    def note(self, finding: Finding, number: int, content: bytes) -> None:
        known = self.findings.get(finding.name)
        if known is not None:
            known["inputs"] += 1
            return
        self.findings[finding.name] = {"text": finding.text, "number": number, "inputs": 1}
        inputs = self.folder / self.kind
        inputs.mkdir(exist_ok=True)
        (inputs / f"{number}").write_bytes(content)

    def note_killer(self, number: int, why: str, content: bytes) -> None:
        self.killers.append(number)
        self.note(Finding(why, f"the process {why}"), number, content)
