"""Grades finished completions off the event loop. A grader that hangs or fails has not found an answer wrong."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rollcast.config.tasks import Grading, Tasks
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.rollouts.records import GradingStatus, PromptTask
from rollcast.tasks.grading import grade
from rollcast.tasks.prompts import verifier_names
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.protections import missing
from rollcast.tasks.thinking import whole_completion
from rollcast.tasks.verifiers import find_verifier
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

PROMPT_END_TOKENS = 16
"""Enough to see whether the prompt ends in `<think>`, however it is tokenised."""


log = get_logger()


def check_grading(tasks: Tasks) -> None:
    """Raises UserError for a verifier that is not installed, or whose programs this machine cannot contain."""
    if tasks.grading.sandbox == "remote":
        return
    sandbox = Sandbox(tasks.grading)
    for verifier in sorted(verifier_names(tasks)):
        find_verifier(verifier)
        sandbox.check(verifier)
    if tasks.grading.sandbox == "unsafe" and (lacks := missing()):
        log.warning("grading is not contained", lacks=lacks)


@dataclass(frozen=True, slots=True)
class Graded:
    reward: float
    status: GradingStatus
    seconds: float
    contained: str = ""
    """What the sandbox stopped, if anything."""


class GradingThreads:
    """Threads that decode completions and call their verifiers, each at most one at a time.

    A grading's clock starts when a thread takes it up, never while it waits for one.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        settings: Grading,
        exporter: Exporter,
        remote: RemoteSandbox | None = None,
    ) -> None:
        """`remote` takes the place of processes on this machine."""
        self._decode = decode
        self._exporter = exporter
        self._sandbox = remote or Sandbox(settings)
        self._threads = ThreadPoolExecutor(settings.processes, thread_name_prefix="grading")

    async def grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        """`token_ids`: the completion without its end-of-text token.

        Raises UserError for an unknown verifier, or one whose work this machine cannot contain.
        """
        graded = await asyncio.get_running_loop().run_in_executor(self._threads, self._grade, task, token_ids)
        self._exporter.add(names.GRADINGS, status=graded.status)
        self._exporter.observe(names.GRADING_SECONDS, graded.seconds)
        if graded.contained:
            self._exporter.add(names.CONTAINED, reason=graded.contained)
        if graded.contained == "time":
            self._exporter.add(names.GRADING_TIMEOUTS, dataset=task.dataset)
        return graded

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sandbox.close()

    def _grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        started = time.perf_counter()
        prompt_end = self._decode(task.prompt_token_ids[-PROMPT_END_TOKENS:].tolist())
        completion = whole_completion(prompt_end, self._decode(token_ids))
        result = grade(task.verifier, completion, task.reference, sandbox=self._sandbox)
        seconds = time.perf_counter() - started
        return Graded(result.reward, GradingStatus(result.status), seconds, result.reason)
