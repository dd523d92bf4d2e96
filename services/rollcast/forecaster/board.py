"""The newest forecast of every run, shared by the reader's thread and HTTP."""

import secrets
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from rollcast.curves.natural_order import natural
from rollcast.curves.reading import TrainerStatus
from rollcast.curves.run_forecast import RunForecast

MAX_TRACE_STEPS = 600


@dataclass(frozen=True)
class SourceState:
    """Whether the source answers."""

    up: bool = False
    message: str = "not read yet"
    read_at: float = 0.0
    """Unix seconds of the last answer; 0 = never."""


@dataclass(frozen=True)
class TracePoint:
    """State of a run at one step, kept in addition to the curve."""

    step: float
    truncation_ratio: float | None
    mean_staleness: float | None


@dataclass
class _Run:
    status: TrainerStatus = field(default_factory=TrainerStatus)
    trace: deque[TracePoint] = field(default_factory=lambda: deque(maxlen=MAX_TRACE_STEPS))
    staleness_seen: tuple[float, float] = (0.0, 0.0)


class Board:
    """Snapshots swapped under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forecasts: dict[str, RunForecast] = {}
        self._runs: dict[str, _Run] = {}
        self._source = SourceState()
        self._closed = False
        self._process = secrets.token_hex(4)
        self._num_changes = 0

    @property
    def version(self) -> str:
        """Another one after every change of forecasts, statuses or the source's state, and after a restart."""
        with self._lock:
            return f"{self._process}-{self._num_changes}"

    def publish(self, forecast: RunForecast) -> None:
        with self._lock:
            self._forecasts[forecast.name] = forecast
            self._num_changes += 1

    def forget(self, run: str, names: Collection[str]) -> None:
        """`names`: under which forecasts of the run are published."""
        with self._lock:
            self._runs.pop(run, None)
            for name in names:
                self._forecasts.pop(name, None)
            self._num_changes += 1

    def get(self, name: str) -> RunForecast | None:
        with self._lock:
            return self._forecasts.get(name)

    def all(self) -> list[RunForecast]:
        """By name, run-2 before run-10."""
        with self._lock:
            return sorted(self._forecasts.values(), key=lambda item: natural(item.name))

    def note_status(self, run: str, status: TrainerStatus) -> None:
        with self._lock:
            entry = self._runs.setdefault(run, _Run())
            self._num_changes += status != entry.status
            entry.status = status
            if status.step is None or (entry.trace and entry.trace[-1].step == status.step):
                return
            mean, entry.staleness_seen = _recent_mean(status.staleness, entry.staleness_seen)
            entry.trace.append(TracePoint(status.step, status.truncation_ratio, mean))

    def status(self, run: str) -> tuple[TrainerStatus, tuple[TracePoint, ...]]:
        with self._lock:
            entry = self._runs.get(run, _Run())
            return replace(entry.status), tuple(entry.trace)

    def note_source(self, state: SourceState) -> None:
        with self._lock:
            self._num_changes += (state.up, state.message) != (self._source.up, self._source.message)
            self._source = state

    @property
    def source(self) -> SourceState:
        with self._lock:
            return self._source

    @property
    def closed(self) -> bool:
        with self._lock:
            return self._closed

    def close(self) -> None:
        """End every wait for a change."""
        with self._lock:
            self._closed = True


def tokens_by_staleness(buckets: dict[float, float]) -> list[tuple[float, float]]:
    """(steps, tokens) from cumulative buckets."""
    tokens = []
    below = 0.0
    for bound in sorted(buckets):
        tokens.append((bound, max(buckets[bound] - below, 0.0)))
        below = buckets[bound]
    return tokens


def _recent_mean(buckets: dict[float, float], seen: tuple[float, float]) -> tuple[float | None, tuple[float, float]]:
    """Mean staleness of the tokens trained since `seen` (tokens, tokens x steps), and the present value of `seen`."""
    finite = [(bound, tokens) for bound, tokens in tokens_by_staleness(buckets) if bound != float("inf")]
    total = sum(tokens for _, tokens in finite)
    weighted = sum(bound * tokens for bound, tokens in finite)
    if total < seen[0]:
        seen = (0.0, 0.0)
    fresh = total - seen[0]
    return ((weighted - seen[1]) / fresh if fresh > 0 else None), (total, weighted)
