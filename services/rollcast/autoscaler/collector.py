"""Adds up samples of metrics pages to totals, over processes that come, go and restart.

Prometheus' `rate()` cannot replace this: by default the autoscaler scrapes the pages itself,
without a Prometheus.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from rollcast.autoscaler.totals import Totals
from rollcast.telemetry import generator_metrics, trainer_metrics
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import Sample

GENERATOR_METRICS = (
    generator_metrics.SAMPLED_TOKENS,
    generator_metrics.RUNNING_ROLLOUTS,
    generator_metrics.GENERATOR_SLOTS,
    generator_metrics.INFLIGHT_TOKENS,
    generator_metrics.GENERATOR_PARKED,
)
READ = (
    trainer_metrics.TRAINER_STEP,
    trainer_metrics.INCARNATION,
    trainer_metrics.INCARNATION_START,
    trainer_metrics.TRAINER_WAIT,
    trainer_metrics.CONSUMED_TOKENS,
    trainer_metrics.GENERATORS,
    trainer_metrics.GROUPS_OUTSTANDING,
    trainer_metrics.COMPLETION_TOKENS_MEAN,
    *GENERATOR_METRICS,
)
"""The metrics that are needed."""
MAX_GENERATORS = 4_096
"""Pages of one reading: a bound, because any host behind the name may answer as a generator."""

Place = str
"""Address of a sample's page, or Prometheus' labels of the target."""


@dataclass(frozen=True, slots=True)
class FleetReading:
    """All pages, read once."""

    trainer: tuple[Sample, ...]
    generators: dict[Place, tuple[Sample, ...]]
    """By page. Samples of other metrics may be among them."""


@dataclass(slots=True)
class _Counter:
    """A counter that may begin again at 0."""

    last: float | None = None
    total: float = 0.0

    def take(self, value: float) -> float:
        """Returns the increase.

        The first value is not counted. After a smaller one the counter restarted at 0.
        """
        rise = 0.0
        if self.last is not None:
            rise = value if value < self.last else value - self.last
        self.last = value
        self.total += rise
        return rise


@dataclass(slots=True)
class _Page:
    sampled: _Counter = field(default_factory=_Counter)
    seen_at: float | None = None


class NotMeasured(Exception):  # noqa: N818  (a state that is waited out, not a mistake)
    """The pages lack a needed metric. The message is one sentence."""


class Collector:
    """Adds up readings of one run."""

    def __init__(self, run: str, max_staleness: int) -> None:
        self._run = run
        self._max_staleness = max_staleness
        self._wait: defaultdict[str, _Counter] = defaultdict(_Counter)
        self._consumed = _Counter()
        self._steps = 0.0
        self._sampled_tokens = 0.0
        self._watched_seconds = 0.0
        self._running_seconds = 0.0
        self._joined_seconds = 0.0
        self._step: float | None = None
        self._incarnation: float | None = None
        self._filled_from_step = 0.0
        self._pages: dict[Place, _Page] = {}
        self._last: Totals | None = None
        self.slots: int | None = None
        """Concurrent rollouts of one generator, the minimum over all; None = not reported."""

    def take(self, reading: FleetReading, now_seconds: float) -> Totals:
        """The totals at `now_seconds` (monotonic seconds). Raises NotMeasured; the next reading is
        then taken as it comes.
        """
        trainer = _by_name(reading.trainer, self._run)
        step = _gauge(trainer, trainer_metrics.TRAINER_STEP)
        joined = _gauge(trainer, trainer_metrics.GENERATORS, state="joined")
        if step is None or joined is None:
            raise NotMeasured("the trainer's metrics are missing")
        self._note_start(trainer, step)
        self._steps += max(0.0, step - self._step) if self._step is not None else 0.0
        self._step = step
        for sample in trainer.get(trainer_metrics.TRAINER_WAIT.name, ()):
            self._wait[sample.labels.get("for", "")].take(sample.value)
        self._consumed.take(_gauge(trainer, trainer_metrics.CONSUMED_TOKENS) or 0.0)
        pages = at_work(reading, self._run)
        self._watch(pages, now_seconds)
        if joined > 0 and not pages:
            raise NotMeasured(f"none of the {joined:.0f} generators can be read")
        last = self._last
        fills = last is None or step < self._filled_from_step
        disturbed = fills or (last is not None and joined > last.joined)
        if last is not None:
            self._joined_seconds += (joined + last.joined) / 2 * (now_seconds - last.at)
        self._last = Totals(
            at=now_seconds,
            batch_wait=self._wait["batch"].total,
            straggler_wait=self._wait["straggler"].total,
            redis_wait=self._wait["redis"].total,
            consumed_tokens=self._consumed.total,
            steps=self._steps,
            sampled_tokens=self._sampled_tokens,
            watched_seconds=self._watched_seconds,
            running_seconds=self._running_seconds,
            joined_seconds=self._joined_seconds,
            joined=round(joined),
            undisturbed_since=now_seconds if disturbed or last is None else last.undisturbed_since,
            filled_since=now_seconds if fills or last is None else last.filled_since,
            outstanding=round(_gauge(trainer, trainer_metrics.GROUPS_OUTSTANDING) or 0.0),
            mean_tokens=_gauge(trainer, trainer_metrics.COMPLETION_TOKENS_MEAN),
        )
        return self._last

    def interrupt(self) -> None:
        """Nothing could be read: the time until the next reading is not added to any total."""
        self._last = None
        for page in self._pages.values():
            page.seen_at = None

    @property
    def run_begins(self) -> bool:
        """Whether the run is in its first steps; False while that is not known."""
        return self._step is not None and self._step <= self._max_staleness + 1

    def _note_start(self, trainer: dict[str, list[Sample]], step: float) -> None:
        """After a start the trainer waits while the pipeline fills, for as many steps as the window
        has batches.
        """
        incarnation = _gauge(trainer, trainer_metrics.INCARNATION)
        first_step = _gauge(
            trainer, trainer_metrics.INCARNATION_START, incarnation=f"{incarnation or 0:.0f}"
        )
        if first_step is not None:
            self._filled_from_step = first_step + self._max_staleness + 1
        elif self._step is None or incarnation != self._incarnation or step < self._step:
            # The trainer does not report its first step, so it may have started just now.
            self._filled_from_step = step + self._max_staleness + 1
        self._incarnation = incarnation

    def _watch(self, pages: dict[Place, tuple[Sample, ...]], now_seconds: float) -> None:
        """Add what each generator did since its page was last seen.

        A page seen for the first time only begins.
        """
        for generator_id in self._pages.keys() - pages.keys():
            del self._pages[generator_id]
        slot_counts = []
        for generator_id, samples in list(pages.items())[:MAX_GENERATORS]:
            by_name = _by_name(samples, self._run)
            sampled = _gauge(by_name, generator_metrics.SAMPLED_TOKENS)
            running = _gauge(by_name, generator_metrics.RUNNING_ROLLOUTS)
            if sampled is None or running is None:
                continue
            slot_counts.append(_gauge(by_name, generator_metrics.GENERATOR_SLOTS) or 0.0)
            page = self._pages.setdefault(generator_id, _Page())
            rise = page.sampled.take(sampled)
            if page.seen_at is not None:
                self._sampled_tokens += rise
                self._watched_seconds += now_seconds - page.seen_at
                self._running_seconds += running * (now_seconds - page.seen_at)
            page.seen_at = now_seconds
        self.slots = min((round(slots) for slots in slot_counts if slots >= 1), default=self.slots)


def generators_there(reading: FleetReading, run: str) -> int | None:
    """Members of the weight group, or readable pages if these are more, as after a start of the
    trainer.

    None if neither is visible; there may be generators all the same.
    """
    joined = _gauge(_by_name(reading.trainer, run), trainer_metrics.GENERATORS, state="joined")
    return max(round(joined or 0.0), len(at_work(reading, run))) or None


def inflight_tokens(reading: FleetReading, run: str) -> dict[Place, float]:
    """Tokens in flight by page, for generators that report them."""
    inflight_by_generator = {
        generator_id: _gauge(_by_name(samples, run), generator_metrics.INFLIGHT_TOKENS)
        for generator_id, samples in at_work(reading, run).items()
    }
    return {
        generator_key: value
        for generator_key, value in inflight_by_generator.items()
        if value is not None
    }


def at_work(reading: FleetReading, run: str) -> dict[Place, tuple[Sample, ...]]:
    """Pages of generators that have not parked.

    A parked one samples nothing, and its other gauges do not move.
    """
    return {
        generator_id: samples
        for generator_id, samples in reading.generators.items()
        if not _gauge(_by_name(samples, run), generator_metrics.GENERATOR_PARKED)
    }


def _by_name(samples: Iterable[Sample], run: str) -> dict[str, list[Sample]]:
    samples_by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.labels.get("run") == run and 0.0 <= sample.value < float("inf"):
            samples_by_name.setdefault(sample.name, []).append(sample)
    return samples_by_name


def _gauge(samples_by_name: dict[str, list[Sample]], metric: Metric, **labels: str) -> float | None:
    """The largest value of all matching series: there are several while a pod is replaced."""
    values = [
        sample.value
        for sample in samples_by_name.get(metric.name, ())
        if all(sample.labels.get(name) == value for name, value in labels.items())
    ]
    return max(values, default=None)
