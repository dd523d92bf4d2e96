"""More draws of what tests/rollouts/test_hostile_entries.py writes into the streams and into
:inflight.
"""

from __future__ import annotations

import asyncio

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testkit.rollouts.servers import Server
from tests.rollouts.hostile_entries import Bench, Entry, Record, hostile_items


@given(hostile_items, st.booleans())
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_that_is_written_ends_a_run_or_costs_a_good_task(
    redis_server: Server, hostile: list[Entry | Record], claim_first: bool
) -> None:
    asyncio.run(Bench(redis_server).work(hostile, claim_first=claim_first))
