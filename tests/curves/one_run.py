"""One run, as its trainer writes it down, and all that can be asked of its forecast."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from rollcast.curves.evaluations import EvaluationLog, Reading, RunHistory
from rollcast.curves.run_forecast import RunBudget, RunForecast, forecast_run
from rollcast.curves.sources.run_folder import RunFolder
from rollcast.runfolder.records import EvaluationRecord, as_json
from rollcast.telemetry import evaluation_metrics

RUN = "twice-started"


def history(*, elastic: bool) -> list[EvaluationRecord]:
    """Two start-ups; with `elastic` two devices become four.

    The evaluation at 50 was lost by a kill, and that of the second incarnation had no verdict.
    """
    rng = np.random.default_rng(5)
    records = []
    made = [(1, step) for step in (0, 10, 20, 30, 40, 50)] + [
        (2, step) for step in (60, 70, 80, 90, 100)
    ]
    for incarnation, step in made:
        start_up = 0.0 if step == 0 else 0.11 + 0.07 * (incarnation == 2)
        learned = step / 300 * (1 + elastic * 0.3 * (step > 60))
        law = 0.2 + 0.6 / (1 + (0.12 / max(learned, 1e-9)) ** 1.7)
        records.append(
            EvaluationRecord(
                run=RUN,
                dataset="arithmetic",
                incarnation=incarnation,
                step=step,
                pass_rate=float(np.clip(law + 0.01 * rng.standard_normal(), 0, 1)),
                standard_error=float(rng.uniform(0.008, 0.012)),
                compute_device_hours=start_up + learned,
                start_up_device_hours=start_up,
                devices=4 if elastic and step > 60 else 2,
                trained_tokens=1013.0 * step,
                samples=640,
                truncation_ratio=None if step == 0 else float(rng.uniform(0, 0.05)),
                started_from=45 * (incarnation == 2),
                at=1.7e9 + step,
            )
        )
    return records


def from_log(reading: Reading) -> RunForecast:
    """As the service makes it of what a source told."""
    log = EvaluationLog(starts=reading.starts.get(RUN, {}))
    for item in reading.evaluations:
        if evaluation_metrics.is_own_curve(item.dataset):
            log.add(item)
    forecast = forecast_run(
        RunHistory(RUN, log.sorted_out().curve_points), RunBudget(), sequence=1, updated_at=0.0
    )
    assert forecast is not None
    return forecast


def as_logged(records: list[EvaluationRecord]) -> list[EvaluationRecord]:
    """With what our loggers tell, of one start, and in TensorBoard's 32 bits."""

    def short(value: float | None) -> float | None:
        return None if value is None else float(np.float32(value))

    return [
        replace(
            record,
            incarnation=1,
            pass_rate=float(np.float32(record.pass_rate)),
            compute_device_hours=float(np.float32(record.compute_device_hours)),
            standard_error=short(record.standard_error),
            trained_tokens=None,
            samples=None,
            start_up_device_hours=None,
            devices=None,
            started_from=None,
            truncation_ratio=None,
        )
        for record in records
    ]


def of_run_folder(records: list[EvaluationRecord], folder: Path) -> RunForecast:
    (folder / "format.json").write_text('{"format": 1}')
    write_jsonl(records, folder / "evaluations.jsonl")
    return from_log(RunFolder(folder, RUN).read())


def write_jsonl(records: list[EvaluationRecord], path: Path) -> Path:
    path.write_text("".join(json.dumps(as_json(record)) + "\n" for record in records))
    return path


def said(forecast: RunForecast) -> dict[str, object]:
    """All that can be asked of it, as bytes."""
    far = [2 * forecast.newest.compute, 4 * forecast.newest.compute]
    law = forecast.forecast
    return {
        "axis": (forecast.axis.quantity, forecast.axis.start_up, forecast.axis.fitted.tobytes()),
        "evaluations": [
            (e.incarnation, e.step, e.compute, e.pass_rate) for e in forecast.evaluations
        ],
        "verdict": (law.verdict.kind, law.verdict.reason),
        "asymptote": law.asymptote().tobytes(),
        "exponent": law.exponent().tobytes(),
        "midpoint": forecast.midpoint().tobytes(),
        "readings": forecast.reading(far).tobytes(),
        "target": forecast.compute_to_target(0.6).tobytes(),
    }


def as_pushed(records: list[EvaluationRecord]) -> list[EvaluationRecord]:
    """With what a push says, and no more.

    The evaluation that was lost is made again: nothing else tells it.
    """
    lost, after = records[5:7]
    again = replace(
        after,
        step=lost.step,
        pass_rate=after.pass_rate - 0.01,
        compute_device_hours=after.compute_device_hours - 0.01,
    )
    return [
        replace(
            record,
            trained_tokens=None,
            samples=None,
            start_up_device_hours=None,
            devices=None,
            started_from=None,
        )
        for record in [*records[:6], again, *records[6:]]
    ]
