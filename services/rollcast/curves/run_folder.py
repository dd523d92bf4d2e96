"""What a run's folder tells: evaluations.jsonl, and from steps.jsonl the truncation at each of them."""

from __future__ import annotations

import bisect
import json
import time
from pathlib import Path
from typing import Any

from rollcast.curves.evaluations import Evaluation, checked
from rollcast.curves.reading import Reading
from rollcast.runfolder.growing_file import GrowingFile

_MALFORMED = (ValueError, KeyError, TypeError, OverflowError, RecursionError)


class RunFolder:
    """Both files, read from where the last look ended."""

    def __init__(self, folder: Path, run: str) -> None:
        self._run = run
        self._evaluations = GrowingFile(folder / "evaluations.jsonl")
        self._steps = GrowingFile(folder / "steps.jsonl")
        self._truncation: dict[int, float] = {}

    def read(self) -> Reading:
        """New complete lines; nothing where there is no file."""
        reading = Reading()
        lines = self._evaluations.next_lines()
        # An evaluation is written after the step that it belongs to: read later, the steps reach at least as far.
        self._read_steps(reading)
        made = sorted(self._truncation) if lines else []
        for line in lines:
            try:
                reading.evaluations.append(self._evaluation(line, made))
            except _MALFORMED:
                reading.skipped["bad_line"] += 1
        newest = max((item.step for item in reading.evaluations), default=0)
        self._truncation = {step: ratio for step, ratio in self._truncation.items() if step >= newest}
        return reading

    def _read_steps(self, reading: Reading) -> None:
        """A step that was lost and made again stands further down the file: the last line of a step holds."""
        while lines := self._steps.next_lines():
            for line in lines:
                try:
                    record = _object(line)
                    if "truncation_ratio" in record:
                        self._truncation[int(record["step"])] = float(record["truncation_ratio"])
                except _MALFORMED:
                    reading.skipped["bad_line"] += 1

    def _evaluation(self, line: bytes, made: list[int]) -> Evaluation:
        """`made`: the steps whose truncation is known, ascending."""
        record = _object(line)
        step = int(record["step"])
        before = bisect.bisect_right(made, step)
        error, tokens, samples = (record.get(name) for name in ("standard_error", "trained_tokens", "samples"))
        return checked(
            Evaluation(
                run=str(record.get("run", self._run)),
                dataset=str(record.get("dataset", "")),
                incarnation=int(record["incarnation"]),
                step=step,
                pass_rate=float(record["pass_rate"]),
                compute=float(record["compute_device_hours"]),
                standard_error=None if error is None else float(error),
                trained_tokens=None if tokens is None else float(tokens),
                samples=None if samples is None else float(samples),
                at=float(record.get("at", time.time())),
                truncation_ratio=self._truncation[made[before - 1]] if before else None,
            )
        )


def _object(line: bytes) -> dict[str, Any]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError("not an object")
    return record
