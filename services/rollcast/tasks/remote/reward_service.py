"""A reward service over HTTP: completions go in batches, rewards come back in their order.

    POST {"items": [{"completion": "...", "row": {...}}, ...]}
      -> {"rewards": [1.0, 0.25, null, ...]}

null says that there is no verdict on this one.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from rollcast.config.verifiers import HttpVerifier
from rollcast.tasks.remote.asking import Asking, NoAnswer, Outcome
from rollcast.tasks.verifiers import Grade, make_grade


class _Waiting(NamedTuple):
    item: dict[str, Any]
    grade: asyncio.Future[Grade]


class RewardService:
    """Grades with one reward service; all from one event loop."""

    def __init__(self, settings: HttpVerifier, count: Callable[[Outcome], None]) -> None:
        self._settings = settings
        self._asking = Asking(settings, count)
        self._waiting: list[_Waiting] = []
        self._timer: asyncio.TimerHandle | None = None
        self._batches: set[asyncio.Task[list[Grade]]] = set()

    async def grade(self, completion: str, row: Any) -> Grade:
        """Raises NoAnswer."""
        grade: asyncio.Future[Grade] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting({"completion": completion, "row": row}, grade))
        if len(self._waiting) >= self._settings.batch:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(
                self._settings.gather_seconds, self._send
            )
        return await grade

    async def close(self) -> None:
        """Whoever waits gets no verdict."""
        if self._waiting:
            self._send()
        for batch in list(self._batches):
            batch.cancel()
        await asyncio.gather(*self._batches, return_exceptions=True)
        await self._asking.close()

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch = self._waiting
        self._waiting = []
        task = asyncio.create_task(self._ask([pending_request.item for pending_request in batch]))
        self._batches.add(task)
        task.add_done_callback(partial(self._hand_out, batch))

    async def _ask(self, items: list[dict[str, Any]]) -> list[Grade]:
        return await self._asking.ask(
            self._settings.url, {"items": items}, lambda answer: self._read(answer, len(items))
        )

    def _hand_out(self, batch: list[_Waiting], task: asyncio.Task[list[Grade]]) -> None:
        """Wakes every waiting caller, however the request ended."""
        self._batches.discard(task)
        error = NoAnswer("paused", "the generator stops") if task.cancelled() else task.exception()
        for number, pending_request in enumerate(batch):
            if pending_request.grade.done():  # its group was let go
                continue
            if error is None:
                pending_request.grade.set_result(task.result()[number])
            elif isinstance(error, NoAnswer):
                pending_request.grade.set_exception(NoAnswer(error.outcome, str(error)))
            else:
                pending_request.grade.set_exception(error)

    def _read(self, answer: Any, number: int) -> list[Grade]:
        rewards = answer["rewards"]
        if not isinstance(rewards, list) or len(rewards) != number:
            answer_summary = (
                f"{len(rewards)} rewards" if isinstance(rewards, list) else type(rewards).__name__
            )
            raise ValueError(f"{answer_summary} for {number} completions")
        return [self._grade(reward) for reward in rewards]

    def _grade(self, reward: object) -> Grade:
        if reward is None:
            return Grade(0.0, "error", failure=f"{self._settings.url} gave no reward (null)")
        return make_grade(reward, f"{self._settings.url} gave")
