"""Grades finished completions off the event loop.

A grader that hangs or fails has not found an answer wrong.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.generator.remote_sandbox import RemoteSandbox
from rollcast.rollouts.records import GradingStatus, PromptTask
from rollcast.runfolder.verifier_failures import VerifierFailure, write_failures
from rollcast.tasks.grading import Verifiers, grade
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.remote.asking import Outcome
from rollcast.tasks.remote.services import Services
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.cores import gradings_at_once
from rollcast.tasks.sandbox.protections import missing
from rollcast.tasks.thinking import whole_completion
from rollcast.tasks.verifiers import MAX_COMPLETION_CHARACTERS, Grade, is_built_in
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger

log = get_logger()


def check_grading(tasks: Tasks) -> None:
    """Raises UserError for a verifier that does not exist, cannot be imported, or that this machine
    cannot contain.
    """
    verifiers = Verifiers.from_tasks(tasks)
    with closing(Sandbox(tasks.grading, verifiers)) as sandbox:
        for name in sorted(verifier_names(tasks)):
            grading_location = verifiers.find(name).place
            if grading_location == "process" or (
                grading_location == "sandbox" and tasks.grading.sandbox != "remote"
            ):
                sandbox.check(name)
                if not is_built_in(name) and (start_error := sandbox.start(name)):
                    raise UserError(f"verifier {name}: {start_error}")
    if tasks.grading.sandbox == "unsafe" and (lacks := missing()):
        log.warning("grading is not contained", lacks=lacks)


@dataclass(frozen=True, slots=True)
class Graded:
    reward: float
    status: GradingStatus
    seconds: float
    contained: str = ""
    """The violation that the sandbox stopped; empty = none."""
    failure: str = ""
    """Why there is no verdict; empty if there is one."""


class VerifierFailures:
    """Verifiers of one generator that give no verdict: the first failure in words, the rest as a
    count.
    """

    def __init__(self, exporter: Exporter, file: Path | None) -> None:
        """`file`: gets the failures, for the run's other processes; None = not written."""
        self._exporter = exporter
        self._file = file
        self._failures: dict[str, VerifierFailure] = {}

    def note(self, verifier: str, sentence: str) -> None:
        """Count a grading without a verdict.

        Logs the first, then whenever their number has doubled.
        """
        self._exporter.add(generator_metrics.VERIFIER_FAILURES, verifier=verifier)
        failure = self._failures.get(verifier, VerifierFailure(verifier, sentence, 0))
        failure = self._failures[verifier] = replace(failure, count=failure.count + 1)
        if failure.count & (failure.count - 1):  # not a power of two
            return
        log.error(
            "a verifier gives no verdict; its completions are left out",
            verifier=verifier,
            first=failure.sentence,
            so_far=failure.count,
        )
        if self._file is not None:
            with suppress(UserError):  # a pod may see no run folder; its log says the same
                write_failures(self._file, list(self._failures.values()))


class GradingThreads:
    """Threads that decode completions and call their verifiers, each at most one at a time. Short
    answers to verifiers that only compute get no thread.

    A grading's clock starts when it has a thread, its verifier is imported and a core is free,
    never before.
    """

    def __init__(
        self,
        decode: Callable[[list[int]], str],
        tasks: Tasks,
        exporter: Exporter,
        remote: RemoteSandbox | None = None,
        failures_file: Path | None = None,
    ) -> None:
        """`remote` replaces the sandbox on this machine.

        `failures_file`: see `VerifierFailures`.
        """
        self._decode = decode
        self._exporter = exporter
        self._verifiers = Verifiers.from_tasks(tasks)
        # Verifiers that need a process of this machine run here even with a grader elsewhere.
        self._local_sandbox = Sandbox(tasks.grading, self._verifiers)
        self._sandbox = remote or self._local_sandbox
        self._services = Services(tasks.verifiers, self._count)
        self._failures = VerifierFailures(exporter, failures_file)
        processes, reduced = gradings_at_once(tasks.grading.processes, "tasks.grading.processes")
        if remote is None and reduced:
            log.warning(reduced)
        # Threads that wait for a grader elsewhere use no core here.
        at_once = processes if remote is None else tasks.grading.processes
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="grading")
        self._imports: dict[str, asyncio.Task[str]] = {}

    async def grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        """`token_ids`: `Completion.text_token_ids`.

        Raises UserError for an unknown verifier, or one whose work this machine cannot contain.
        """
        grading_location = self._verifiers.find(task.verifier).place
        if grading_location == "remote":
            graded = await self._ask(task, token_ids)
        else:
            is_local = self._sandbox is self._local_sandbox
            if grading_location == "process" or (grading_location == "sandbox" and is_local):
                await self._wait_for_import(task.verifier)
            # Such a verifier cannot hang. For 256 tokens a thread costs more than the grading.
            if grading_location == "here" and len(token_ids) <= 256:
                graded = self._grade(task, token_ids)
            else:
                graded = await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._grade, task, token_ids
                )
        if graded.status in (GradingStatus.ERROR, GradingStatus.TIMEOUT):
            self._failures.note(task.verifier, graded.failure)
        self._exporter.add(generator_metrics.GRADINGS, status=graded.status)
        self._exporter.observe(generator_metrics.GRADING_SECONDS, graded.seconds)
        if graded.contained:
            self._exporter.add(generator_metrics.CONTAINED, reason=graded.contained)
        if graded.contained == "time":
            self._exporter.add(generator_metrics.GRADING_TIMEOUTS, dataset=task.dataset)
        return graded

    async def close(self) -> None:
        """Ends every process and every request."""
        await self._services.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._sandbox.close()
        self._local_sandbox.close()

    async def _wait_for_import(self, verifier: str) -> None:
        """Wait for its import without one of the threads, which gradings of other verifiers need
        meanwhile.
        """
        if self._local_sandbox.is_started(verifier):
            return
        if (running := self._imports.get(verifier)) is None or running.done():
            running = self._imports[verifier] = asyncio.create_task(
                asyncio.to_thread(self._local_sandbox.start, verifier)
            )
        # Other gradings wait for the same import, which must not end with this one.
        await asyncio.shield(running)

    def _grade(self, task: PromptTask, token_ids: list[int]) -> Graded:
        started_at = time.perf_counter()
        completion = self._completion(task, token_ids)
        is_in_process = self._verifiers.find(task.verifier).place == "process"
        sandbox = self._local_sandbox if is_in_process else self._sandbox
        verdict = grade(
            task.verifier,
            completion,
            task.verifier_reference,
            sandbox=sandbox,
            verifiers=self._verifiers,
        )
        return _make_graded(verdict, started_at)

    async def _ask(self, task: PromptTask, token_ids: list[int]) -> Graded:
        started_at = time.perf_counter()
        completion = self._completion(task, token_ids)
        if len(completion) > MAX_COMPLETION_CHARACTERS:
            return _make_graded(Grade(0.0, "wrong"), started_at)
        return _make_graded(
            await self._services.grade(task.verifier, completion, task.verifier_reference),
            started_at,
        )

    def _completion(self, task: PromptTask, token_ids: list[int]) -> str:
        # Enough to see whether the prompt ends in `<think>`, however it is tokenised
        prompt_end = self._decode(task.prompt_token_ids[-16:].tolist())
        return whole_completion(prompt_end, self._decode(token_ids))

    def _count(self, verifier: str, outcome: Outcome) -> None:
        self._exporter.add(generator_metrics.VERIFIER_REQUESTS, verifier=verifier, outcome=outcome)


def _make_graded(verdict: Grade, started_at: float) -> Graded:
    seconds = time.perf_counter() - started_at
    return Graded(
        verdict.reward, GradingStatus(verdict.status), seconds, verdict.reason, verdict.failure
    )
