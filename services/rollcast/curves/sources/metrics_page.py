"""Metrics pages that a trainer serves: the gauges of its evaluations and of its own state."""

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rollcast.config.connections import Http
from rollcast.connections.http import local_url
from rollcast.connections.port_files import read_port
from rollcast.curves.evaluations import CurvePoint, Reading, TrainerStatus, validate_evaluation
from rollcast.runfolder.survival import graded_share
from rollcast.telemetry import evaluation_metrics, trainer_metrics
from rollcast.telemetry.prometheus_reader import MetricsPage, Sample, SourceAway

_EVALUATION_FIELDS = {
    evaluation_metrics.EVAL_PASS_RATE.name: "pass_rate",
    evaluation_metrics.EVAL_STANDARD_ERROR.name: "standard_error",
    evaluation_metrics.EVAL_COMPUTE.name: "compute",
    evaluation_metrics.EVAL_TRAINED_TOKENS.name: "trained_tokens",
    evaluation_metrics.EVAL_SAMPLES.name: "samples",
    evaluation_metrics.EVAL_START_UP.name: "start_up",
    evaluation_metrics.EVAL_DEVICES.name: "devices",
    evaluation_metrics.EVAL_TRUNCATION.name: "truncation_ratio",
    evaluation_metrics.EVAL_PROMPTS.name: "num_prompts",
    evaluation_metrics.EVAL_ASKED_PROMPTS.name: "asked_prompts",
}
_STATUS_FIELDS = {
    trainer_metrics.TRAINER_STEP.name: "step",
    trainer_metrics.INCARNATION.name: "incarnation",
    trainer_metrics.MAX_STALENESS.name: "max_staleness",
    trainer_metrics.LONGEST_GROUP_RATIO.name: "longest_group_ratio",
    trainer_metrics.TRUNCATION_RATIO.name: "truncation_ratio",
    trainer_metrics.INTERRUPTED_RATIO.name: "interrupted_ratio",
    trainer_metrics.REWARD_MEAN.name: "reward_mean",
    trainer_metrics.BUDGET_STEPS.name: "budget_steps",
    trainer_metrics.BUDGET_DEVICE_HOURS.name: "budget_device_hours",
}
_STALENESS_BUCKET = f"{trainer_metrics.STALENESS.name}_bucket"
EVALUATION_LABELS = ("run", "dataset", "incarnation", "step")
"""They identify an evaluation."""
EVALUATION_NAMES = tuple(_EVALUATION_FIELDS)
STATUS_NAMES = (
    *_STATUS_FIELDS,
    _STALENESS_BUCKET,
    trainer_metrics.COMPUTE_SPENT.name,
    trainer_metrics.GROUP_SIGNALS.name,
    trainer_metrics.INCARNATION_START.name,
)


class MetricsPages:
    """Direct scraping of fixed addresses, or of the port in the run folder's file."""

    def __init__(self, urls: tuple[str, ...], http: Http, port_file: Path) -> None:
        self._urls = urls
        self._http = http
        self._port_file = port_file
        self._pages: dict[str, MetricsPage] = {}

    def read(self) -> Reading:
        samples: list[Sample] = []
        failures = []
        urls = self._urls or (self._found_url(),)
        for url in urls:
            if url not in self._pages:
                self._pages[url] = MetricsPage(url, self._http)
            try:
                samples += self._pages[url].read()
            except SourceAway as error:
                failures.append(error)
        # A trainer that was started again may serve another port.
        for url in self._pages.keys() - set(urls):
            self._pages.pop(url).close()
        if len(failures) == len(urls):
            raise failures[0]
        reading = interpret(samples, at=time.time())
        reading.skipped["page_away"] += len(failures)
        reading.away += map(str, failures)
        return reading

    def close(self) -> None:
        for page in self._pages.values():
            page.close()

    def _found_url(self) -> str:
        try:
            port = read_port(self._port_file)
        except OSError as error:
            raise SourceAway(f"no trainer has written {self._port_file} yet") from error
        except ValueError as error:
            raise SourceAway(f"{self._port_file} holds no port number") from error
        return f"{local_url(self._http, port)}/metrics"


def interpret(samples: Iterable[Sample], *, at: float) -> Reading:
    """Evaluations and states of runs in samples.

    The gauges of one evaluation have the same labels.
    """
    reading = Reading()
    parts: dict[tuple[str, ...], dict[str, float]] = {}
    for sample in samples:
        labels = sample.labels
        run = labels.get("run", "")
        if not run:
            continue
        if sample.name in _EVALUATION_FIELDS:
            key = tuple(labels.get(name, "") for name in EVALUATION_LABELS)
            parts.setdefault(key, {})[_EVALUATION_FIELDS[sample.name]] = sample.value
        elif math.isfinite(sample.value):
            _note_status(reading, run, sample.name, labels, sample.value)
    for (run, dataset, incarnation, step), values in parts.items():
        if "pass_rate" not in values or "compute" not in values:
            reading.skipped["incomplete"] += 1
            continue
        quantities: dict[str, Any] = dict.fromkeys(_EVALUATION_FIELDS.values()) | values
        share = graded_share(quantities.pop("num_prompts"), quantities.pop("asked_prompts"))
        try:
            evaluation = CurvePoint(
                run, dataset, int(incarnation), int(step), at=at, graded_share=share, **quantities
            )
            reading.evaluations.append(validate_evaluation(evaluation))
        except ValueError:
            reading.skipped["out_of_bounds"] += 1
    return reading


def _note_status(
    reading: Reading, run: str, name: str, labels: Mapping[str, str], value: float
) -> None:
    if name in _STATUS_FIELDS:
        setattr(reading.status.setdefault(run, TrainerStatus()), _STATUS_FIELDS[name], value)
        return
    try:
        # Several pages may hold a series of this run, and their counts add up.
        if name == _STALENESS_BUCKET:
            buckets = reading.status.setdefault(run, TrainerStatus()).staleness
            bound = float(labels.get("le", ""))
            buckets[bound] = buckets.get(bound, 0.0) + value
        elif name == trainer_metrics.COMPUTE_SPENT.name:
            # Of a trainer and the one before it, both may be there for some minutes
            spent = reading.status.setdefault(run, TrainerStatus()).spent
            role = labels.get("role", "")
            spent[role] = max(spent.get(role, 0.0), value)
        elif name == trainer_metrics.GROUP_SIGNALS.name:
            signals = reading.status.setdefault(run, TrainerStatus()).group_signals
            signal = labels.get("signal", "")
            signals[signal] = signals.get(signal, 0.0) + value
        elif name == trainer_metrics.INCARNATION_START.name:
            reading.starts.setdefault(run, {})[int(labels.get("incarnation", ""))] = int(value)
    except ValueError:
        reading.skipped["bad_label"] += 1
