"""Lanes that take turns at a receiver."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.turns import LaneTurns


def run_all(receivers: list[LaneTurns], counts: list[int], seed: int) -> list[int]:
    """Every lane's pieces at every receiver, each piece over only when all have it; the most in
    hand anywhere.
    """
    meetings = {
        (lane, i): threading.Barrier(len(receivers))
        for lane, n in enumerate(counts)
        for i in range(n)
    }
    in_hand, most = [0] * len(receivers), [0] * len(receivers)
    lock = threading.Lock()

    def lane_of(receiver: int, lane: int) -> None:
        rng = random.Random(seed + 100 * receiver + lane)
        for index in range(counts[lane]):
            time.sleep(rng.random() / 1_000)
            with receivers[receiver].turn(lane, 20.0):
                with lock:
                    in_hand[receiver] += 1
                    most[receiver] = max(most[receiver], in_hand[receiver])
                meetings[lane, index].wait(20.0)
                with lock:
                    in_hand[receiver] -= 1

    with ThreadPoolExecutor(len(receivers) * len(counts)) as pool:
        for future in [
            pool.submit(lane_of, r, lane)
            for r in range(len(receivers))
            for lane in range(len(counts))
        ]:
            future.result()
    return most


@settings(deadline=None, max_examples=15)
@given(counts=st.lists(st.integers(0, 4), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_receivers_that_hurry_differently_never_wait_in_a_circle(
    counts: list[int], seed: int
) -> None:
    receivers = [LaneTurns(counts, 3) for _ in range(2)]
    assert max(run_all(receivers, counts, seed)) <= (3 if len(counts) > 3 else sum(counts))


def test_a_lane_that_breaks_ends_those_that_wait_for_it() -> None:
    turns = LaneTurns([1] * 3, 1)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(partial(enter, turns, 2))
        with pytest.raises(RuntimeError, match="broke"), turns.turn(0, 1.0):
            raise RuntimeError("broke")
        with pytest.raises(GroupError, match="lane 2 waited for lanes that do not move"):
            waiting.result(10.0)


def test_a_lane_that_stands_still_costs_the_others_their_patience() -> None:
    turns = LaneTurns([1] * 2, 1)
    with turns.turn(0, 1.0), pytest.raises(GroupError, match="lane 1 waited"):
        enter(turns, 1, patience_seconds=0.05)


def enter(turns: LaneTurns, lane: int, patience_seconds: float = 20.0) -> None:
    with turns.turn(lane, patience_seconds):
        pass
