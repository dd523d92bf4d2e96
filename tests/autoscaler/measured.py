"""Rates as they could be measured, for tests of the decision."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import strategies as st

from rollcast.autoscaler.decision_memory import Memory, ReplicaLimits
from rollcast.autoscaler.totals import WindowRates
from rollcast.config.autoscaler import Autoscaler

LIMITS = ReplicaLimits(slots=48, rollouts_per_group=16, window_groups=384)
SETTINGS = Autoscaler(mode="controller", deployment="generators", least=1, most=96)

FED = WindowRates(
    seconds=300.0,
    generators=32.0,
    generators_now=32,
    batch_wait=0.0,
    long_batch_wait=0.0,
    straggler_wait=0.0,
    redis_wait=0.0,
    sampled=100_000.0,
    consumption=100_000.0,
    running=30.0,
    outstanding=200,
    mean_tokens=5_000.0,
    growth=0.0,
)
"""32 generators feed the trainer; a third of their slots is free."""

STARVED = replace(FED, batch_wait=0.2, long_batch_wait=0.2, consumption=125_000.0, running=42.0)
"""All slots are taken and the trainer waits for a batch a fifth of the time: 40 generators would
feed it."""


@st.composite
def measurements(draw: st.DrawFn) -> WindowRates:
    """Anything that the pages could say."""
    generators = draw(st.integers(1, 200))
    wait = draw(st.floats(0, 1))
    return WindowRates(
        seconds=draw(st.floats(150, 300)),
        generators=draw(st.floats(max(0.5, generators - 3), generators)),
        generators_now=generators,
        batch_wait=wait,
        long_batch_wait=draw(st.floats(0, 1)),
        straggler_wait=draw(st.sampled_from([0.0, 0.1, 0.5])),
        redis_wait=draw(st.sampled_from([0.0, 0.1, 0.9])),
        sampled=draw(st.floats(0, 1e7)),
        consumption=draw(st.none() | st.floats(0, 1e7)),
        running=draw(st.floats(0, 48)),
        outstanding=draw(st.integers(0, 384)),
        mean_tokens=draw(st.none() | st.floats(1, 1e5)),
        growth=draw(st.floats(-1e-2, 1e-2)),
    )


@st.composite
def memories(draw: st.DrawFn, now: float = 1e4) -> Memory:
    """Whatever could have been decided before."""
    seen = draw(st.booleans())
    times = sorted(draw(st.lists(st.floats(now - 700, now - 1), max_size=5)))
    return Memory(
        target=draw(st.integers(1, 200)),
        capability=draw(st.floats(1, 1e5)) if seen else draw(st.none() | st.floats(1, 1e5)),
        seen_at=draw(st.floats(0, now)) if seen else None,
        seen_tokens=draw(st.none() | st.floats(1, 1e5)) if seen else None,
        required_history=tuple((at, draw(st.integers(1, 200))) for at in times),
        rose_at=draw(st.floats(0, now)),
        fell_at=draw(st.floats(0, now)),
        tries_from=draw(st.just(-math.inf) | st.floats(now - 700, now + 7_200)),
    )
