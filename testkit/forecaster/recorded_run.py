"""A recorded run and a real metrics page that replays it, as the trainer would export it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rollcast.config.connections import Http
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.exporter import Exporter

KEPT = 16


@dataclass(frozen=True)
class Reading:
    incarnation: int
    step: int
    pass_rate: float
    standard_error: float
    compute: float
    trained_tokens: float
    truncation_ratio: float


def record(
    num_points: int = 30, *, asymptote: float = 0.85, seed: int = 0, incarnation: int = 1
) -> list[Reading]:
    """A run of one device-hour: the law with R_0 = 0.2, B = 1.8, C_mid = 0.25 and 1 % noise."""
    rng = np.random.default_rng(seed)
    compute = np.linspace(0.0, 1.0, num_points)
    with np.errstate(divide="ignore"):
        rise = 1 / (1 + (0.25 / compute) ** 1.8)
    pass_rate = np.clip(
        0.2 + (asymptote - 0.2) * rise + 0.01 * rng.standard_normal(num_points), 0, 1
    )
    points = enumerate(zip(pass_rate.tolist(), compute.tolist(), strict=True))
    return [
        Reading(incarnation, 10 * i, rate, 0.01, at, 1e6 * at, 0.02 + 0.002 * i)
        for i, (rate, at) in points
    ]


def cut_off_from(first: int, points: list[Reading]) -> list[Reading]:
    """Three in ten answers are cut off from evaluation `first` on."""
    return [
        replace(point, truncation_ratio=0.3 if i >= first else 0.02)
        for i, point in enumerate(points)
    ]


class TrainerPage:
    """The trainer's /metrics with the last 16 evaluations."""

    def __init__(self, run: str = "demo", port: int = 0, http: Http | None = None) -> None:
        self.exporter = Exporter(run)
        self._shown_evaluations: deque[dict[str, str]] = deque()
        listener = listen("127.0.0.1", port, setting="port")
        self._server = HttpServer(
            service_routes(self.exporter.render, lambda: (True, "ok")), listener, http or Http()
        )
        self.port = self._server.port

    def show(self, reading: Reading) -> None:
        self.exporter.set(trainer_metrics.TRUNCATION_RATIO, reading.truncation_ratio)
        version = {"incarnation": str(reading.incarnation), "step": str(reading.step)}
        labels = {"dataset": "arithmetic", **version}
        values = (
            (evaluation_metrics.EVAL_STANDARD_ERROR, reading.standard_error),
            (evaluation_metrics.EVAL_COMPUTE, reading.compute),
            (evaluation_metrics.EVAL_TRAINED_TOKENS, reading.trained_tokens),
            (evaluation_metrics.EVAL_SAMPLES, 1024.0),
            (evaluation_metrics.EVAL_TRUNCATION, reading.truncation_ratio),
            # Last: a page that is read within this loop shows no evaluation yet.
            (evaluation_metrics.EVAL_PASS_RATE, reading.pass_rate),
        )
        for metric, value in values:
            self.exporter.set(metric, value, **labels)
        self._shown_evaluations.append(labels)
        if len(self._shown_evaluations) > KEPT:
            oldest = self._shown_evaluations.popleft()
            for metric, _ in values:
                self.exporter.remove(metric, **oldest)
        self.exporter.set(trainer_metrics.TRAINER_STEP, reading.step)
        self.exporter.set(trainer_metrics.INCARNATION, reading.incarnation)
        self.exporter.set(trainer_metrics.MAX_STALENESS, 8)
        self.exporter.set(trainer_metrics.LONGEST_GROUP_RATIO, 0.4)
        for steps in range(5):
            self.exporter.observe(trainer_metrics.STALENESS, steps, count=5 - steps)

    def __enter__(self) -> TrainerPage:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()


def run_file(folder: Path, source: dict[str, object], **more: object) -> Path:
    """A run file for the forecaster; ports are free ones."""
    settings = {"run": "demo", "folder": str(folder), "model": {"path": str(folder)}, **more}
    settings.setdefault("forecaster", {"source": source, "http_port": 0})
    path = folder / "run.json"
    path.write_text(json.dumps(settings))
    return path
