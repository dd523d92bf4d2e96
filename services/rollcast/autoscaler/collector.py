"""Adds up samples of metrics pages to totals, over processes that come, go and restart.

Prometheus' `rate()` cannot replace this: in every mode the autoscaler may scrape the pages itself,
without a Prometheus. A Prometheus is asked for the same samples, so that both sources share this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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

    trainer: Sequence[Sample]
    generators: Mapping[Place, Sequence[Sample]]
    """By page. Samples of other metrics may be among them."""


class NotMeasured(Exception):  # noqa: N818  (a state that is waited out, not a mistake)
    """The pages lack a needed metric. The message is one sentence."""


class Collector:
    """Adds up readings of one run."""

    def __init__(self, run: str, max_staleness: int) -> None:
        self._run = run
        self._max_staleness = max_staleness
        waits = ("batch_wait", "straggler_wait", "redis_wait")
        tokens = ("steps", "consumed_tokens", "sampled_tokens")
        integrals = ("watched_seconds", "running_seconds", "joined_seconds")
        self._sums = dict.fromkeys((*waits, *tokens, *integrals), 0.0)
        """The totals that only rise, by their field in `Totals`."""
        self._values: dict[str, float] = {}
        """The trainer's counters when they were last read."""
        self._pages: dict[Place, tuple[float, float]] = {}
        """When a generator was last read, and the tokens that it had sampled."""
        self._step: float | None = None
        self._incarnation: float | None = None
        self._filled_from_step = 0.0
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
        self._sums["steps"] += max(0.0, step - self._step) if self._step is not None else 0.0
        self._step = step
        for sample in trainer.get(trainer_metrics.TRAINER_WAIT.name, ()):
            self._add_counter(f"{sample.labels.get('for')}_wait", sample.value)
        self._add_counter(
            "consumed_tokens", _gauge(trainer, trainer_metrics.CONSUMED_TOKENS) or 0.0
        )
        pages = at_work(reading, self._run)
        self._watch(pages, now_seconds)
        if joined > 0 and not pages:
            raise NotMeasured(f"none of the {joined:.0f} generators can be read")
        last = self._last
        fills = last is None or step < self._filled_from_step
        disturbed = fills or (last is not None and joined > last.joined)
        if last is not None:
            self._sums["joined_seconds"] += (joined + last.joined) / 2 * (now_seconds - last.at)
        self._last = Totals(
            at=now_seconds,
            **self._sums,
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
        self._pages.clear()

    @property
    def run_begins(self) -> bool:
        """Whether the run is in its first steps; False while that is not known."""
        return self._step is not None and self._step <= self._max_staleness + 1

    def _add_counter(self, name: str, value: float) -> None:
        """Add the increase of one of the trainer's counters, if a decision needs it."""
        if name in self._sums:
            self._sums[name] += _increase(self._values.get(name), value)
            self._values[name] = value

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

    def _watch(self, pages: dict[Place, Sequence[Sample]], now_seconds: float) -> None:
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
            if generator_id in self._pages:
                seen_at, earlier_sampled = self._pages[generator_id]
                self._sums["sampled_tokens"] += _increase(earlier_sampled, sampled)
                self._sums["watched_seconds"] += now_seconds - seen_at
                self._sums["running_seconds"] += running * (now_seconds - seen_at)
            self._pages[generator_id] = (now_seconds, sampled)
        self.slots = min((round(slots) for slots in slot_counts if slots >= 1), default=self.slots)


def _increase(last: float | None, value: float) -> float:
    """The increase of a counter, which began again at 0 if its value is smaller than the last one.

    Nothing is known before the first value.
    """
    if last is None:
        return 0.0
    return value if value < last else value - last


def generators_there(reading: FleetReading, run: str) -> int | None:
    """Members of the weight group, or readable pages if these are more, as after a start of the
    trainer.

    None if neither is visible; there may be generators all the same.
    """
    joined = _gauge(_by_name(reading.trainer, run), trainer_metrics.GENERATORS, state="joined")
    return max(round(joined or 0.0), len(at_work(reading, run))) or None


def inflight_tokens(reading: FleetReading, run: str) -> dict[Place, float]:
    """Tokens in flight by page, for generators that report them."""
    by_generator = {}
    for generator_id, samples in at_work(reading, run).items():
        tokens = _gauge(_by_name(samples, run), generator_metrics.INFLIGHT_TOKENS)
        if tokens is not None:
            by_generator[generator_id] = tokens
    return by_generator


def at_work(reading: FleetReading, run: str) -> dict[Place, Sequence[Sample]]:
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
