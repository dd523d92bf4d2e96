"""Grades finished completions off the event loop. A grader's timeout or error is no wrong answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollcast.rollouts.records import GradingStatus, PromptTask
from rollcast.tasks.verifiers import grade
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter

DEADLINE_SECONDS = 10.0
"""Of one grading, from the moment it starts."""
THREADS = 4
"""Gradings at once; a verifier that takes long waits for its sandbox, not for a core."""


@dataclass(frozen=True, slots=True)
class Graded:
    reward: float
    status: GradingStatus
    seconds: float


class Grader:
    """Threads that decode completions and call their verifiers."""

    def __init__(self, decode: Callable[[list[int]], str], exporter: Exporter) -> None:
        self._decode = decode
        self._exporter = exporter
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grading")

    async def grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        """`token_ids`: the completion without its end-of-text token. Raises UserError for an unknown verifier."""
        graded = await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, task, token_ids)
        self._exporter.add(names.GRADINGS, status=graded.status)
        self._exporter.observe(names.GRADING_SECONDS, graded.seconds)
        return graded

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        started = time.perf_counter()
        result = grade(task.verifier, self._decode(token_ids), task.reference, deadline_seconds=DEADLINE_SECONDS)
        return Graded(result.reward, GradingStatus(result.status), time.perf_counter() - started)
