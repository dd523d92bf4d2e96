"""From pages to totals and rates, against a record of what really happened."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollcast.autoscaler.collector import (
    Collector,
    FleetReading,
    NotMeasured,
    generators_there,
    inflight_tokens,
)
from rollcast.autoscaler.totals import Totals, rates
from rollcast.telemetry import generator_metrics, trainer_metrics
from rollcast.telemetry.metric import Metric
from rollcast.telemetry.prometheus_reader import Sample

RUN = "demo"
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sample(metric: Metric, value: float, **labels: str) -> Sample:
    return Sample(metric.name, {"run": RUN, **labels}, value)


def generator(sampled: float, running: float = 10.0, inflight: float = 5.0) -> tuple[Sample, ...]:
    return (
        sample(generator_metrics.SAMPLED_TOKENS, sampled),
        sample(generator_metrics.RUNNING_ROLLOUTS, running),
        sample(generator_metrics.INFLIGHT_TOKENS, inflight),
    )


def trainer(
    step: float,
    *,
    waited: float = 0.0,
    joined: int = 1,
    incarnation: int = 1,
    start: float | None = None,
) -> tuple[Sample, ...]:
    told = (
        ()
        if start is None
        else (sample(trainer_metrics.INCARNATION_START, start, incarnation=str(incarnation)),)
    )
    return (
        *told,
        sample(trainer_metrics.TRAINER_STEP, step),
        sample(trainer_metrics.INCARNATION, incarnation),
        sample(trainer_metrics.TRAINER_WAIT, waited, **{"for": "batch"}),
        sample(trainer_metrics.TRAINER_WAIT, 7.0, **{"for": "weights"}),
        sample(trainer_metrics.GENERATORS, joined, state="joined"),
        sample(trainer_metrics.GENERATORS, joined, state="ready"),
        sample(trainer_metrics.CONSUMED_TOKENS, 100.0 * step),
        sample(trainer_metrics.COMPLETION_TOKENS_MEAN, 50.0),
    )


@UNHURRIED
@given(
    st.lists(
        st.tuples(st.floats(1, 20), st.integers(0, 1_000), st.booleans(), st.booleans()),
        min_size=2,
        max_size=30,
    )
)
def test_tokens_of_a_generator_that_restarts_or_is_not_read_are_those_of_the_time_it_was_watched(
    turns: list[tuple[float, int, bool, bool]],
) -> None:
    """Each turn: seconds, tokens sampled in them, whether the process began again before, whether
    its page was read.
    """
    collector = Collector(RUN, max_staleness=4)
    now = counter = tokens = watched = 0.0
    seen_at: float | None = None
    totals: Totals | None = None
    for seconds, sampled, restarts, is_read in turns:
        now += seconds
        before = counter
        counter = float(sampled) if restarts else counter + sampled
        pages = {"g0": generator(counter)} if is_read else {}
        if not is_read:
            with pytest.raises(NotMeasured, match="none of the 1 generators"):
                collector.take(FleetReading(trainer(200), pages), now)
            seen_at = None  # what passed unseen is not added
            continue
        if seen_at is not None:
            # A restart that shows no fall of the counter cannot be told from going on.
            tokens += counter if counter < before else counter - before
            watched += now - seen_at
        seen_at = now
        totals = collector.take(FleetReading(trainer(200), pages), now)
    if totals is not None:
        assert totals.sampled_tokens == pytest.approx(tokens)
        assert totals.watched_seconds == pytest.approx(watched)
        assert totals.running_seconds == pytest.approx(10.0 * watched)


def test_rates_of_a_window_with_one_page_of_three_missing() -> None:
    """3 members at 100 tokens a second each, of which two can be read: together 300."""
    collector, history = Collector(RUN, max_staleness=4), []
    for turn in range(60):
        now = 10.0 * turn
        pages = {name: generator(100.0 * now, running=12.0) for name in ("g0", "g1")}
        waited = 2.0 * turn  # a fifth of the time
        history.append(
            collector.take(FleetReading(trainer(10 + turn, waited=waited, joined=3), pages), now)
        )
    measured = rates(history, 300.0)
    assert measured is not None
    assert measured.sampled == pytest.approx(300.0)
    assert measured.sampled_by_one == pytest.approx(100.0)
    assert measured.generators == pytest.approx(3.0)
    assert measured.running == pytest.approx(12.0)
    assert measured.batch_wait == pytest.approx(0.2)
    # A step of 100 tokens every 10 s, of which it waits 2.
    assert measured.consumption == pytest.approx(100.0 / 8.0)
    assert measured.growth == 0.0


def test_a_trainer_that_loads_is_not_taken_for_one_that_consumes_less() -> None:
    """It makes a step every 10 s, starts again and makes none for five minutes, then goes on as
    before.
    """
    collector, history, told = Collector(RUN, max_staleness=4), [], []
    step = 100.0
    for turn in range(200):
        incarnation = 1 if turn < 100 else 2
        step += 0.0 if 100 <= turn < 130 else 1.0
        page = trainer(step, incarnation=incarnation, start=0.0 if incarnation == 1 else 200.0)
        history.append(
            collector.take(FleetReading(page, {"g0": generator(10.0 * turn)}), 10.0 * turn)
        )
        if (measured := rates(history, 300.0)) is not None:
            told.append(measured.consumption)
    assert len(told) > 100
    assert [consumed for consumed in told if consumed is not None] == pytest.approx(
        [10.0] * len(told)
    )


@pytest.mark.parametrize("first", [5, 6, 300])
def test_the_trainer_tells_how_long_its_pipeline_has_had_to_fill(first: int) -> None:
    """An autoscaler that starts in the middle of a run measures as soon as it has half a window."""
    collector, history = Collector(RUN, max_staleness=4), []
    incarnation, start = 1, 0.0
    measured_at = []
    for turn in range(60):
        step = first + turn / 10  # a step lasts half as long as it takes to measure
        if turn >= 30:
            incarnation, start = 2, 40.0
            step = start + (turn - 30)
        pages = {"g0": generator(10.0 * turn)}
        reading = FleetReading(trainer(step, incarnation=incarnation, start=start), pages)
        history.append(collector.take(reading, 10.0 * turn))
        if rates(history, 100.0) is not None:
            measured_at.append(turn)
    assert measured_at == [*range(5, 30), *range(30 + 4 + 5, 60)], (
        "the new incarnation fills for k + 1 steps"
    )


def test_the_start_of_another_incarnation_is_not_taken_for_this_ones() -> None:
    collector = Collector(RUN, max_staleness=4)
    earlier = sample(trainer_metrics.INCARNATION_START, 10.0, incarnation="2")
    for turn in range(3):
        page = (earlier, *trainer(21 + turn, incarnation=3, start=20.0))
        totals = collector.take(FleetReading(page, {"g0": generator(turn)}), float(turn))
        assert totals.undisturbed_since == totals.at
    assert not collector.run_begins


def test_the_beginning_of_a_run_is_told_from_a_resumed_one() -> None:
    for step, begins in ((0, True), (5, True), (6, False), (300, False)):
        collector = Collector(RUN, max_staleness=4)
        assert not collector.run_begins, "nothing was read"
        collector.take(FleetReading(trainer(step, start=step), {"g0": generator(1.0)}), 0.0)
        assert collector.run_begins is begins


@pytest.mark.parametrize(
    ("joined", "pages", "there"),
    [(3, 2, 3), (0, 3, 3), (0, 0, None), (None, 2, 2), (None, 0, None)],
)
def test_generators_that_cannot_be_seen_are_not_taken_for_none(
    joined: int | None, pages: int, there: int | None
) -> None:
    page = () if joined is None else trainer(9, joined=joined)
    assert (
        generators_there(FleetReading(page, {f"g{number}": () for number in range(pages)}), RUN)
        == there
    )


def test_a_parked_generator_is_neither_measured_nor_counted() -> None:
    """It goes on answering, with gauges that stand still."""
    parked = (*generator(100.0), sample(generator_metrics.GENERATOR_PARKED, 1.0))
    one, alone = Collector(RUN, max_staleness=4), Collector(RUN, max_staleness=4)
    for turn in range(3):
        pages = {"g0": generator(10.0 * turn)}
        with_parked = one.take(FleetReading(trainer(200), pages | {"g1": parked}), 10.0 * turn)
        assert with_parked == alone.take(FleetReading(trainer(200), pages), 10.0 * turn)
    reading = FleetReading(trainer(200, joined=1), {"g0": generator(1.0), "g1": parked})
    assert generators_there(reading, RUN) == 1
    assert list(inflight_tokens(reading, RUN)) == ["g0"]


def test_nothing_is_measured_until_the_pipeline_has_filled_or_after_a_generator_came() -> None:
    """Of a trainer that does not tell its start."""
    collector, history = Collector(RUN, max_staleness=4), []
    joined, incarnation = 1, 1
    measured_at = []
    for turn in range(120):
        now, step = 10.0 * turn, float(turn)
        if turn == 50:
            joined = 2
        if turn >= 80:
            incarnation, step = 2, turn - 10.0  # back at a checkpoint ten steps ago
        pages = {f"g{number}": generator(now) for number in range(joined)}
        history.append(
            collector.take(
                FleetReading(trainer(step, joined=joined, incarnation=incarnation), pages), now
            )
        )
        if rates(history, 100.0) is not None:
            measured_at.append(turn)
    # Filled after k + 1 = 5 steps; then half a window of 100 s.
    assert measured_at == [*range(9, 50), *range(55, 80), *range(89, 120)]


@pytest.mark.parametrize(
    ("reading", "reason"),
    [
        (FleetReading((), {}), "the trainer's metrics are missing"),
        (
            FleetReading((sample(trainer_metrics.TRAINER_STEP, 3),), {}),
            "the trainer's metrics are missing",
        ),
        (FleetReading(trainer(3, joined=2), {}), "none of the 2 generators"),
        (
            FleetReading(tuple(Sample(s.name, {"run": "other"}, s.value) for s in trainer(3)), {}),
            "are missing",
        ),
        (
            FleetReading((sample(trainer_metrics.TRAINER_STEP, math.nan), *trainer(3)[1:]), {}),
            "are missing",
        ),
    ],
)
def test_what_is_missing_is_said(reading: FleetReading, reason: str) -> None:
    with pytest.raises(NotMeasured, match=reason):
        Collector(RUN, max_staleness=4).take(reading, 1.0)


def test_a_generator_that_starts_up_is_left_out() -> None:
    collector = Collector(RUN, max_staleness=4)
    starting = (sample(generator_metrics.RUNNING_ROLLOUTS, 0.0),)
    for turn in range(3):
        totals = collector.take(
            FleetReading(trainer(9), {"g0": generator(10.0 * turn), "g1": starting}), float(turn)
        )
    assert totals.watched_seconds == pytest.approx(2.0)


def test_slots_are_what_the_generator_with_the_fewest_tells() -> None:
    collector = Collector(RUN, max_staleness=4)
    collector.take(FleetReading(trainer(9), {"g0": generator(1.0)}), 0.0)
    assert collector.slots is None, "nobody has told"
    pages = {
        name: (*generator(1.0), sample(generator_metrics.GENERATOR_SLOTS, slots))
        for name, slots in (("a", 40.0), ("b", 36.0))
    }
    collector.take(FleetReading(trainer(9), pages), 1.0)
    assert collector.slots == 36
    collector.take(FleetReading(trainer(9), {"g0": generator(1.0)}), 2.0)
    assert collector.slots == 36, "what was known holds"


def test_steady_growth_is_a_trend_and_a_jump_is_none() -> None:
    def growth(mean_tokens: list[float]) -> float:
        history = [
            Totals(
                at=10.0 * turn,
                batch_wait=0.0,
                straggler_wait=0.0,
                redis_wait=0.0,
                consumed_tokens=0.0,
                steps=turn,
                sampled_tokens=10.0 * turn,
                watched_seconds=10.0 * turn,
                running_seconds=0.0,
                joined_seconds=10.0 * turn,
                joined=1,
                undisturbed_since=0.0,
                filled_since=0.0,
                outstanding=0,
                mean_tokens=mean,
            )
            for turn, mean in enumerate(mean_tokens)
        ]
        measured = rates(history, 300.0)
        assert measured is not None
        return measured.growth

    assert growth([1_000 * math.exp(1e-4 * 10 * turn) for turn in range(180)]) == pytest.approx(
        1e-4
    )
    assert growth([1_000 * math.exp(-1e-4 * 10 * turn) for turn in range(180)]) == pytest.approx(
        -1e-4
    )
    assert abs(growth([1_000.0] * 120 + [2_000.0] * 60)) < 1e-9
    assert growth([1_000.0] * 60) == 0.0, "too short to tell"


def test_tokens_in_flight_are_told_by_page() -> None:
    reading = FleetReading(
        (),
        {
            "pod-0": generator(1.0, inflight=30.0),
            "pod-1": (),
            "pod-2": generator(1.0, inflight=0.0),
        },
    )
    assert inflight_tokens(reading, RUN) == {"pod-0": 30.0, "pod-2": 0.0}
