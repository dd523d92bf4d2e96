"""Bounded waiting for coroutines: a deadline for one, the first of several."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


async def within(seconds: float, work: Awaitable[Result]) -> Result:
    """The result of `work`. Raises TimeoutError.

    Not asyncio.wait_for: before Python 3.12 it returns the result and drops a cancellation that comes in the same turn
    of the loop, so that a session which should end would go on.
    """
    async with asyncio.timeout(seconds):
        return await work


async def first_of(*work: Coroutine[Any, Any, object]) -> None:
    """Run all until the first ends, then cancel the others; raises the error of the first."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()
