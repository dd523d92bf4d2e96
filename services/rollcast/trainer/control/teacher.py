"""Asks a teacher behind an endpoint for the log-probs of the groups that come back, while they wait
in the intake.

    intake: ask(group) --> thread: one request a rollout, at most `requests` at a time
                       --> answered() --> take(sequence)

A group waits for `deadline_seconds` at most, the time in which its requests have no place included.

Each token sequence of a rollout (an episode may have several) is one prompt of its own token ids to
/v1/completions of vLLM, with `prompt_logprobs`: its log-probs of the tokens that it is given. A
rollout without an answer at its deadline is counted, and never trained on: it has no advantage,
which is not an advantage of 0.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

import numpy as np

from rollcast.config.distillation import EndpointTeacher
from rollcast.config.errors import PassingError, UserError
from rollcast.rollouts.records import Logprobs, Rollout, RolloutGroup, TokenIds
from rollcast.tasks.remote.asking import Asking, NoAnswer
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.trainer.control.defects import MAX_LOGPROB

Result = TypeVar("Result")

ANSWER_BYTES_PER_TOKEN = 512
"""vLLM writes about 75 bytes for a token (id, log-prob, rank, text); a token's text may be long."""
ANSWER_BYTES = 1 << 16
"""Bytes that an answer may have in addition."""
WARN_SECONDS = 60.0
"""Between two warnings that rollouts were not answered."""
SILENT_GROUPS = 8
"""Groups in a row without any answer that end the run. One may consist of rollouts that the teacher
cannot take; eight do not, and every further one costs a prompt and makes no step."""
FINAL_STATUSES = frozenset({400, 413})
"""HTTP answers about one rollout, such as one too long for the teacher. Others are about the
server: its token or model may be corrected while it is asked again."""
PASSING_OUTCOMES = frozenset({"timeout", "unreachable"})
"""Outcomes of a server that is away or too slow, unless it named a fault of the request."""
OUTCOMES = ("answered", "unreachable", "refused", "unreadable", "timeout")
STOP_SECONDS = 10.0
"""How long requests under way may take to be cancelled at the end, and the loop to begin."""
RolloutLogprobs = tuple[Logprobs, ...]
"""[L] log pi_teacher of the tokens of each sequence of a rollout. Those of given tokens mean
nothing."""
TeacherLogprobs = tuple[RolloutLogprobs | None, ...]
"""One entry for each rollout of a group; None if the teacher did not answer all of it."""
log = get_logger()


class NoPlace(NoAnswer):
    """The teacher was not even asked, because others had all its places until the deadline."""


@dataclass(eq=False)
class TeacherClient:
    """Made, called and closed by one thread; its requests run on another."""

    _settings: EndpointTeacher
    _exporter: Exporter
    _: KW_ONLY
    max_tokens: int
    """The longest prompt with its completion."""
    is_wanted: Callable[[RolloutGroup], bool] = lambda _: True
    """Whether anything of a group can be trained on."""

    def __post_init__(self) -> None:
        self._max_answer_bytes = ANSWER_BYTES + ANSWER_BYTES_PER_TOKEN * self.max_tokens
        self._answer_futures: dict[int, Future[TeacherLogprobs]] = {}
        """By task sequence."""
        self._warned_at = -WARN_SECONDS
        self._silent_groups = 0
        """Groups in a row without any answer, in the order in which they ended."""
        self._last_failure: NoAnswer | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="teacher", daemon=True)
        self._thread.start()
        self._asking, self._places = self._on_loop(self._open()).result(STOP_SECONDS)
        for outcome in OUTCOMES:  # a counter that begins at 1 would hide the first
            self._exporter.add(trainer_metrics.TEACHER_ROLLOUTS, 0.0, outcome=outcome)

    async def _open(self) -> tuple[Asking, asyncio.Semaphore]:
        asking = Asking(self._settings, lambda _: None, self._max_answer_bytes, FINAL_STATUSES)
        return asking, asyncio.Semaphore(self._settings.requests)

    def _on_loop(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def ask(self, group: RolloutGroup) -> bool:
        """Begin to ask about a group; False = it is not wanted."""
        if not self.is_wanted(group):
            return False
        self._answer_futures[group.sequence] = self._on_loop(self._ask_group(group))
        return True

    def answered_sequences(self) -> list[int]:
        """Task sequences of the groups whose answers are complete, or given up, and not yet taken.

        Raises UserError if the teacher answers nothing any more; PassingError if it may have failed
        for now.
        """
        if self._silent_groups >= SILENT_GROUPS:
            raise self._silent()
        return [sequence for sequence, future in self._answer_futures.items() if future.done()]

    def take(self, sequence: int) -> TeacherLogprobs | None:
        """The answers on a group of `answered_sequences`. None = it was never asked about."""
        future = self._answer_futures.pop(sequence, None)
        return None if future is None else future.result(0.0)  # it is done

    def forget(self, sequence: int) -> None:
        """The group is given up."""
        if (future := self._answer_futures.pop(sequence, None)) is not None:
            future.cancel()

    def close(self) -> None:
        """Cancel the requests under way; a teacher that holds one is left behind
        with its thread.
        """
        for sequence in list(self._answer_futures):
            self.forget(sequence)
        try:
            self._on_loop(self._end()).result(STOP_SECONDS)
        except TimeoutError:
            log.warning(
                "connections to the teacher could not be closed in time", seconds=STOP_SECONDS
            )
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_SECONDS)
            # A loop that still runs cannot be closed.
            if not self._thread.is_alive():
                self._loop.close()

    async def _end(self) -> None:
        """Wait for the cancelled requests too: the loop would complain about one that it never saw
        end.
        """
        open_tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in open_tasks:
            task.cancel()
        await asyncio.gather(*open_tasks, return_exceptions=True)
        await self._asking.close()

    def _silent(self) -> UserError:
        setting = "recipe.distillation.teacher"
        sentence = (
            f"{setting}.url = {self._settings.url}: {self._silent_groups} groups in a row got no "
            f"answer, without which nothing can be trained on ({self._last_failure}); correct the "
            f"server, or {setting} in the run file"
        )
        failure = self._last_failure
        if failure is None or failure.is_own_mistake or failure.outcome not in PASSING_OUTCOMES:
            return UserError(sentence)
        return PassingError(sentence)

    async def _ask_group(self, group: RolloutGroup) -> TeacherLogprobs:
        prompt = group.prompt_token_ids
        deadline = self._loop.time() + self._settings.deadline_seconds
        requests = (self._ask_rollout(prompt, rollout, deadline) for rollout in group.rollouts)
        # Rollouts ask at the same time, and `_places` bounds them over all groups.
        answers = tuple(await asyncio.gather(*requests))
        is_silent = all(answer is None for answer in answers)
        self._silent_groups = self._silent_groups + 1 if is_silent else 0
        return answers

    async def _ask_rollout(
        self, task_prompt: TokenIds, rollout: Rollout, deadline: float
    ) -> RolloutLogprobs | None:
        answers: list[Logprobs] = []
        num_tokens = 0
        for sequence in rollout.sequences:
            prompt = rollout.sequence_prompt(sequence, task_prompt)
            try:
                await self._place_until(deadline)
                try:
                    answers.append(await self._ask_about(prompt, sequence.token_ids, deadline))
                finally:
                    self._places.release()
            except NoAnswer as error:
                self._note(error)
                return None
            num_tokens += len(prompt) + len(sequence.token_ids)
        # An answer shows that the failures before it have passed.
        self._last_failure = None
        self._exporter.add(trainer_metrics.TEACHER_ROLLOUTS, outcome="answered")
        self._exporter.add(trainer_metrics.TEACHER_TOKENS, num_tokens)
        return tuple(answers)

    async def _place_until(self, deadline: float) -> None:
        seconds = self._settings.deadline_seconds
        busy_error = NoPlace(
            "timeout", f"{self._settings.url} was busy with other rollouts for {seconds:g} s"
        )
        try:
            async with asyncio.timeout_at(deadline):
                await self._places.acquire()
        except TimeoutError:
            raise busy_error from None
        if self._loop.time() >= deadline:  # others gave their place up at the same moment
            self._places.release()
            raise busy_error

    async def _ask_about(self, prompt: TokenIds, token_ids: TokenIds, deadline: float) -> Logprobs:
        body = {
            "model": self._settings.model,
            "prompt": [*prompt.tolist(), *token_ids.tolist()],
            "prompt_logprobs": 0,  # of the given tokens alone
            "max_tokens": 1,  # the least that vLLM takes
            "add_special_tokens": False,
        }
        url = f"{self._settings.url.rstrip('/')}/completions"
        logprobs: Logprobs = await self._asking.ask(
            url, body, lambda answer: read_logprobs(answer, len(prompt), token_ids), deadline
        )
        return logprobs

    def _note(self, error: NoAnswer) -> None:
        if self._last_failure is None or not isinstance(
            error, NoPlace
        ):  # which says nothing about the cause
            self._last_failure = error
        self._exporter.add(trainer_metrics.TEACHER_ROLLOUTS, outcome=error.outcome)
        if time.monotonic() - self._warned_at >= WARN_SECONDS:
            self._warned_at = time.monotonic()
            log.warning(
                "the teacher gave no log-probs; these rollouts are not trained on",
                reason=str(error),
            )


def read_logprobs(answer: Any, num_prompt: int, token_ids: TokenIds) -> Logprobs:
    """[L] log-probs of the completion's tokens in vLLM's answer.

    Raises ValueError, KeyError, TypeError or IndexError if it is about other tokens, or if a value
    is no number.
    """
    rows = answer["choices"][0]["prompt_logprobs"]
    num_asked = num_prompt + len(token_ids)
    if len(rows) != num_asked:
        raise ValueError(f"log-probs of {len(rows)} tokens, asked for {num_asked}")
    pairs = zip(rows[num_prompt:], token_ids.tolist(), strict=True)
    values = np.array([float(row[str(token)]["logprob"]) for row, token in pairs], dtype=np.float32)
    if not (values <= MAX_LOGPROB).all():  # false for NaN too
        raise ValueError(f"a log-prob of {values.max():g}")
    return values
