"""What a session's tasks are made of."""

from __future__ import annotations

import asyncio

import pytest

from rollcast.weights.member import first_of, within

MANY = 1000


async def turns_of_the_loop(number: int) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("turns_of_a_poll", [1, 2, 3])
def test_a_session_ends_at_whatever_moment_of_a_poll_its_end_comes(turns_of_a_poll: int) -> None:
    polls = 0

    async def poll() -> None:
        nonlocal polls
        while polls < MANY:
            polls += 1
            await within(5.0, turns_of_the_loop(turns_of_a_poll))

    for turns in range(1, 40):
        asyncio.run(first_of(poll(), turns_of_the_loop(turns)))
        assert polls < MANY, f"polled on after an end in turn {turns}"


def test_a_call_that_takes_too_long_is_a_timeout() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(within(0.01, asyncio.sleep(5.0)))
