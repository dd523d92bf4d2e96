"""The newest forecast of every run, shared by the reader's thread and HTTP."""

import secrets
import threading
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from rollcast.config.json_text import finite_or_none
from rollcast.curves.amounts import natural
from rollcast.curves.evaluations import TrainerStatus
from rollcast.curves.run_forecast import RunForecast
from rollcast.forecaster.schema import SourceAnswer, Trace


@dataclass
class _Run:
    status: TrainerStatus = field(default_factory=TrainerStatus)
    # Steps of the trace that the page draws
    trace: deque[Trace] = field(default_factory=lambda: deque(maxlen=600))
    staleness_seen: tuple[float, float] = (0.0, 0.0)


class Board:
    """Snapshots swapped under one lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forecasts: dict[str, RunForecast] = {}
        self._runs: dict[str, _Run] = {}
        self._source = SourceAnswer(up=False, message="not read yet", read_at=0.0)
        self.closed = threading.Event()
        """Set when the service stops: it ends every wait for a change."""
        self._process = secrets.token_hex(4)
        self._num_changes = 0

    @property
    def version(self) -> str:
        """Another one after every change of forecasts, statuses or the source's state, and after a
        restart.
        """
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
            entry.trace.append(
                Trace(
                    step=status.step,
                    truncation_ratio=finite_or_none(status.truncation_ratio),
                    mean_staleness=finite_or_none(mean),
                )
            )

    def status(self, run: str) -> tuple[TrainerStatus, tuple[Trace, ...]]:
        with self._lock:
            entry = self._runs.get(run, _Run())
            return replace(entry.status), tuple(entry.trace)

    def note_source(self, state: SourceAnswer) -> None:
        with self._lock:
            self._num_changes += (state.up, state.message) != (
                self._source.up,
                self._source.message,
            )
            self._source = state

    @property
    def source(self) -> SourceAnswer:
        with self._lock:
            return self._source


def tokens_by_staleness(buckets: dict[float, float]) -> list[tuple[float, float]]:
    """(steps, tokens) from cumulative buckets."""
    tokens = []
    below = 0.0
    for bound in sorted(buckets):
        tokens.append((bound, max(buckets[bound] - below, 0.0)))
        below = buckets[bound]
    return tokens


def _recent_mean(
    buckets: dict[float, float], previous_totals: tuple[float, float]
) -> tuple[float | None, tuple[float, float]]:
    """Mean staleness of the tokens trained since `previous_totals` (tokens, tokens x steps), and
    the present value of `previous_totals`.
    """
    finite_buckets = [
        (bound, tokens) for bound, tokens in tokens_by_staleness(buckets) if bound != float("inf")
    ]
    total_tokens = sum(tokens for _, tokens in finite_buckets)
    weighted_tokens = sum(bound * tokens for bound, tokens in finite_buckets)
    if total_tokens < previous_totals[0]:
        previous_totals = (0.0, 0.0)
    fresh = total_tokens - previous_totals[0]
    return ((weighted_tokens - previous_totals[1]) / fresh if fresh > 0 else None), (
        total_tokens,
        weighted_tokens,
    )
