"""The logs that the early warning is tested on: own run folders, and public runs that logged more
than a reward.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rollcast.runfolder.files import EVALUATIONS, STEPS
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, StepRecord

Array = NDArray[np.float64]

PUBLIC_COLUMNS = {
    "entropy": ("entropy", "entropy_avg"),
    "gradient norm": ("grad_norm",),
    "length": ("response_len_mean", "avg_response_len"),
    "truncation": ("truncation_rate",),
}
OWN_COLUMNS = {
    "entropy": "entropy",
    "gradient norm": "grad_norm",
    "log-prob gap": "logprob_gap_mean",
    "length": "completion_tokens_mean",
    "truncation": "truncation_ratio",
}
COLLAPSED_SHARE = 0.75
"""A run has collapsed if its last tenth earns less than this share of its best tenth."""


@dataclass(frozen=True, slots=True)
class Log:
    """One run.

    Attributes:
        step: (n,)
        reward: (n,) mean training reward in [0, 1].
        signals: (n,) each, by name.
        evaluations: (step, pass rate) of the held-out prompts.
    """

    name: str
    step: Array
    reward: Array
    signals: dict[str, Array]
    evaluations: list[tuple[float, float]] = field(default_factory=list)

    @property
    def collapsed(self) -> bool:
        return bool(self._tenths[-1] < COLLAPSED_SHARE * self._tenths.max())

    @property
    def onset(self) -> float:
        """With hindsight: the step after which the reward never again reached 90 % of its best mean
        of a tenth.
        """
        high = np.flatnonzero(self._tenths >= 0.9 * self._tenths.max())
        return float(self.step[high[-1] + self._width - 1])

    @property
    def _width(self) -> int:
        return max(5, self.reward.size // 10)

    @property
    def _tenths(self) -> Array:
        return np.convolve(self.reward, np.full(self._width, 1.0 / self._width), "valid")


def own_log(folder: Path) -> Log:
    steps = list(RecordFile(folder / STEPS, StepRecord).read())
    evaluations = list(RecordFile(folder / EVALUATIONS, EvaluationRecord).read())
    return Log(
        name=folder.name,
        step=np.array([float(step.step) for step in steps]),
        reward=_filled([step.reward_mean for step in steps]),
        signals={
            name: _filled([getattr(step, column) for step in steps])
            for name, column in OWN_COLUMNS.items()
        },
        evaluations=[(float(item.step), item.pass_rate) for item in evaluations],
    )


def public_logs(curves: Path) -> list[Log]:
    """The logs in `curves` that have a reward and at least one signal."""
    logs = [_gpg_log(path) for path in sorted((curves / "qwen2-7b-gpg").glob("*.train.csv"))]
    for path in sorted((curves / "qwen3-0.6b-grpo").glob("*.csv")):
        log = _grpo_log(path)
        # One run was published twice, the second time with fewer columns.
        if not any(np.array_equal(log.reward, other.reward) for other in logs):
            logs.append(log)
    return logs


def _gpg_log(path: Path) -> Log:
    rows = _rows(path)
    scores = _rows(path.with_name(path.name.replace(".train.", ".val.")))
    gsm8k = [
        (float(row["step"]), float(row["score"])) for row in scores if "gsm8k" in row["metric"]
    ]
    reward = _filled([_number(row["reward_mean"]) for row in rows])
    return Log(path.name.removesuffix(".train.csv"), _steps(rows), reward, _signals(rows), gsm8k)


def _grpo_log(path: Path) -> Log:
    rows = _rows(path)
    # A run that was started again: its newest start counts.
    starts = [index for index, row in enumerate(rows) if row["step"] == "1"]
    rows = rows[starts[-1] :]
    reward = _filled([_number(row["reward_avg"]) for row in rows])
    if "format_reward_avg" in rows[0]:
        reward = reward - _filled([_number(row["format_reward_avg"]) for row in rows])
    scores = [
        (float(row["step"]), float(row["eval_acc"]) / 100) for row in rows if row.get("eval_acc")
    ]
    return Log(
        path.stem.removesuffix("_metrics"),
        _steps(rows),
        reward.clip(0.0, 1.0),
        _signals(rows),
        scores,
    )


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _steps(rows: list[dict[str, str]]) -> Array:
    return np.array([float(row["step"]) for row in rows])


def _signals(rows: list[dict[str, str]]) -> dict[str, Array]:
    found = {}
    for name, columns in PUBLIC_COLUMNS.items():
        for column in columns:
            if column in rows[0]:
                found[name] = _filled([_number(row[column]) for row in rows])
    return found


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _filled(values: list[float | None]) -> Array:
    """A missing value is that of the step before."""
    filled: list[float] = []
    newest = 0.0
    for value in values:
        if value is not None and np.isfinite(value):
            newest = value
        filled.append(newest)
    return np.array(filled)
