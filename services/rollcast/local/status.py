"""What a run on this machine is doing: read from its folder and from the metrics pages of its services."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field

import httpx

from rollcast.config.run import RunConfig
from rollcast.connections import http
from rollcast.runfolder import files
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.records import EvaluationRecord, IncarnationRecord, StepRecord
from rollcast.runfolder.survival import surviving
from rollcast.telemetry import names
from rollcast.telemetry.names import Metric
from rollcast.telemetry.prometheus_reader import SourceAway, parse_page

MAX_PAGE_BYTES = 4 << 20
PAGE_TIMEOUT_SECONDS = 1.0
RATE_SECONDS = 10.0
"""Tokens per second are counted over this time."""
STALENESS_STEPS = 50
"""The staleness histogram shows the last steps."""

Page = dict[str, list[tuple[dict[str, str], float]]]
"""Metric name -> (labels, value) of each series."""


@dataclass(frozen=True, slots=True)
class ForecastReading:
    """The forecaster's newest forecast; quantiles are (5 %, 50 %, 95 %)."""

    verdict: str
    asymptote: tuple[float, float, float]
    headroom: tuple[float, float, float]
    end: tuple[float, float, float] | None
    """What an evaluation at the end of the budget will read."""
    end_device_hours: float | None
    num_points: int
    """Evaluations it was made from, the one at step 0 included."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    step: int = 0
    budget_share: float | None = None
    """0 to 1; None without a budget."""
    evaluated_share: float | None = None
    """Of the budget, at the newest evaluation."""
    reward_mean: float | None = None
    compute_device_hours: float = 0.0
    evaluations: tuple[EvaluationRecord, ...] = ()
    """Of the surviving history, by step."""
    staleness: dict[int, int] = field(default_factory=dict)
    """Tokens trained on in the last steps, by how many steps old they were."""
    tokens_per_second: float | None = None
    """Generated tokens that reached the trainer."""
    generators_ready: int = 0
    forecast: ForecastReading | None = None


class StatusReader:
    """Reads what is new at each call."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        self._folder = config.run_folder
        self._step_file = RecordFile(self._folder / files.STEPS, StepRecord)
        self._evaluation_file = RecordFile(self._folder / files.EVALUATIONS, EvaluationRecord)
        self._incarnation_file = RecordFile(self._folder / files.INCARNATIONS, IncarnationRecord)
        self._starts: dict[int, int] = {}
        self._num_beginnings = 1
        self._evaluations: list[EvaluationRecord] = []
        self._recent: deque[StepRecord] = deque(maxlen=STALENESS_STEPS)
        self._tokens: deque[tuple[float, float]] = deque()
        self._client = http.client(timeout_seconds=PAGE_TIMEOUT_SECONDS, token=config.http.token, tls=config.http.tls)

    def read(self) -> RunStatus:
        self._read_evaluations()
        self._recent.extend(self._step_file.read())
        trainer = self._page("trainer")
        newest = self._recent[-1] if self._recent else None
        step = int(_first(trainer, names.TRAINER_STEP) or (newest.step if newest else 0))
        compute = sum(value for _, value in trainer.get(names.COMPUTE_STATE.name, []))
        compute = compute or (self._evaluations[-1].compute_device_hours if self._evaluations else 0.0)
        last = self._evaluations[-1] if self._evaluations else None
        return RunStatus(
            step=step,
            budget_share=self._budget_share(step, compute),
            evaluated_share=self._budget_share(last.step, last.compute_device_hours) if last else None,
            reward_mean=newest.reward_mean if newest else None,
            compute_device_hours=compute,
            evaluations=tuple(self._evaluations),
            staleness=self._staleness(),
            tokens_per_second=self._token_rate(_first(trainer, names.TOKENS, role="generator")),
            generators_ready=int(_first(trainer, names.GENERATORS, state="ready") or 0),
            forecast=_forecast(self._page("forecaster")),
        )

    @property
    def num_skipped(self) -> int:
        """Lines of the run's files that were no records, so far."""
        return self._evaluation_file.num_skipped + self._step_file.num_skipped

    def url(self, service: str) -> str | None:
        """Where the service serves HTTP; None until it does."""
        try:
            port = int((self._folder / "ports" / service).read_text())
        except (OSError, ValueError):
            return None
        settings = self._config.http
        if service == "forecaster":
            settings = settings.model_copy(update={"bind": self._config.forecaster.bind})
        return http.local_url(settings, port)

    def _read_evaluations(self) -> None:
        new = [item for item in self._evaluation_file.read() if names.is_own_curve(item.dataset)]
        if self._evaluation_file.num_beginnings != self._num_beginnings:
            self._num_beginnings = self._evaluation_file.num_beginnings
            self._evaluations = []
        self._starts |= {item.incarnation: item.started_from for item in new if item.started_from is not None}
        self._starts |= {began.incarnation: began.started_from for began in self._incarnation_file.read()}
        self._evaluations = surviving([*self._evaluations, *new], self._starts)

    def _page(self, service: str) -> Page:
        url = self.url(service)
        if url is None:
            return {}
        try:
            text = self._client.get(f"{url}/metrics").raise_for_status().text
            return _page_of(text, self._config.run) if len(text) <= MAX_PAGE_BYTES else {}
        except (httpx.HTTPError, SourceAway):
            return {}

    def _budget_share(self, step: int, compute: float) -> float | None:
        budget = self._config.budget
        shares = [step / budget.steps] if budget.steps is not None else []
        if budget.device_hours is not None:
            shares.append(compute / budget.device_hours)
        return min(1.0, max(shares)) if shares else None

    def _staleness(self) -> dict[int, int]:
        counts: dict[int, int] = {}
        for record in self._recent:
            for steps, number in record.staleness_tokens.items():
                counts[steps] = counts.get(steps, 0) + number
        return dict(sorted(counts.items()))

    def _token_rate(self, total: float | None) -> float | None:
        now = time.monotonic()
        if total is None:
            return None
        if self._tokens and total < self._tokens[-1][1]:
            self._tokens.clear()  # the trainer was started again
        self._tokens.append((now, total))
        while len(self._tokens) > 2 and now - self._tokens[0][0] > RATE_SECONDS:
            self._tokens.popleft()
        (start, first), (end, last) = self._tokens[0], self._tokens[-1]
        return (last - first) / (end - start) if end > start else None


def _page_of(text: str, run: str) -> Page:
    """The series of one run: a forecaster's page may hold several runs'. Raises SourceAway for what is no page."""
    page: Page = {}
    for sample in parse_page(text):
        if sample.labels.get("run") == run:
            page.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return page


def _first(page: Page, metric: Metric, **labels: str) -> float | None:
    for found, value in page.get(metric.name, []):
        if labels.items() <= found.items():
            return value
    return None


def _quantiles(page: Page, metric: Metric) -> tuple[float, float, float] | None:
    found = {float(labels.get("quantile", "nan")): value for labels, value in page.get(metric.name, [])}
    wanted = (0.05, 0.5, 0.95)
    return (found[0.05], found[0.5], found[0.95]) if all(quantile in found for quantile in wanted) else None


def _forecast(page: Page) -> ForecastReading | None:
    asymptote, headroom = _quantiles(page, names.FORECAST_ASYMPTOTE), _quantiles(page, names.FORECAST_HEADROOM)
    if asymptote is None or headroom is None:
        return None
    verdicts = [labels.get("verdict", "") for labels, value in page.get(names.FORECAST_VERDICT.name, []) if value == 1]
    return ForecastReading(
        verdict=verdicts[0] if verdicts else "unknown",
        asymptote=asymptote,
        headroom=headroom,
        end=_quantiles(page, names.FORECAST_END),
        end_device_hours=_first(page, names.FORECAST_END_DEVICE_HOURS),
        num_points=int(_first(page, names.FORECAST_POINTS) or 0),
    )
