"""One request to a service: a place, tries, a deadline, a bounded answer."""

import asyncio
import json
import time
from collections.abc import Callable, Container
from typing import Any, Literal, TypeVar

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from rollcast.config.distillation import EndpointTeacher
from rollcast.config.errors import PASSING_STATUS, SERVER_ERROR
from rollcast.config.verifiers import Remote
from rollcast.connections.bearer import NoTokenError, bearer_headers

MAX_ANSWER_BYTES = 4 << 20

Outcome = Literal["answered", "unreachable", "refused", "unreadable", "paused", "timeout"]
Answer = TypeVar("Answer")


class NoAnswer(Exception):  # noqa: N818  (a state that is counted, not a fault of ours)
    """Why a service gave none."""

    def __init__(
        self,
        outcome: Outcome,
        sentence: str,
        *,
        may_pass: bool = False,
        is_own_mistake: bool = False,
    ) -> None:
        """`may_pass`: a second try may go well.

        `is_own_mistake`: the request is called wrong, as with 401 or 404.
        """
        super().__init__(sentence)
        self.outcome: Outcome = outcome
        self.may_pass = may_pass
        self.is_own_mistake = is_own_mistake


class Circuit:
    """A service that fails again and again is left alone for a while.

    closed --failures in a row--> open --pause--> one may try --works--> closed
    `--fails--> open
    """

    def __init__(
        self, failures: int, pause_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_failures = failures
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._num_failures = 0
        self._closed_again_at = 0.0

    def allows(self) -> bool:
        """Whether a request may be made now; of an open one, once a pause."""
        if self._num_failures < self._max_failures:
            return True
        if self._clock() < self._closed_again_at:
            return False
        self._closed_again_at = self._clock() + self._pause_seconds
        return True

    def note(self, *, worked: bool) -> None:
        """What became of a request."""
        self._num_failures = 0 if worked else self._num_failures + 1
        if self._num_failures >= self._max_failures:
            self._closed_again_at = self._clock() + self._pause_seconds


class Asking:
    """Requests to one service; all from one event loop."""

    def __init__(
        self,
        settings: Remote | EndpointTeacher,
        count: Callable[[Outcome], None],
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        final_statuses: Container[int] | None = None,
    ) -> None:
        """`final_statuses`: HTTP answers that no second try would change.

        None = all below 500 except a few.
        """
        self._settings = settings
        self._max_answer_bytes = max_answer_bytes
        self._final_statuses = final_statuses
        self._count = count
        self._circuit = Circuit(settings.failures, settings.pause_seconds)
        self._last_failure = ""
        self._places = asyncio.Semaphore(settings.requests)
        self._client = httpx.AsyncClient(
            timeout=settings.deadline_seconds,
            limits=httpx.Limits(max_connections=settings.requests),
            headers={
                "Accept-Encoding": "identity"
            },  # a bound on the received bytes is a bound on the decoded ones
        )

    async def ask(
        self,
        url: str,
        body: dict[str, Any],
        parse_answer: Callable[[Any], Answer],
        deadline: float | None = None,
    ) -> Answer:
        """The result of `parse_answer` on the JSON answer; it raises ValueError, KeyError,
        TypeError or IndexError for nonsense.

        Raises NoAnswer: after the last try, at the deadline, or immediately if the circuit is open.
        `deadline`: on the clock of the event loop. None = `deadline_seconds` from now.
        """
        failures: list[NoAnswer] = []

        def may_pass(error: BaseException) -> bool:
            if isinstance(error, NoAnswer):
                failures.append(error)
            return isinstance(error, NoAnswer) and error.may_pass

        tries = AsyncRetrying(
            retry=retry_if_exception(may_pass),
            stop=stop_after_attempt(self._settings.tries),
            # Between two tries
            wait=wait_random_exponential(multiplier=0.25, max=8.0),
            reraise=True,
        )
        seconds = self._settings.deadline_seconds
        try:
            async with asyncio.timeout_at(
                asyncio.get_running_loop().time() + seconds if deadline is None else deadline
            ):
                return await tries(
                    self._once, url, json.dumps(body).encode("utf-8", "surrogatepass"), parse_answer
                )
        except TimeoutError:
            sentence = (
                f"{self._settings.url} gave no answer within {self._settings.deadline_seconds:g} s"
            )
            is_own_mistake = False
            if failures:
                sentence += f"; the last try: {failures[-1]}"
                is_own_mistake = failures[-1].is_own_mistake
            error = NoAnswer("timeout", sentence, is_own_mistake=is_own_mistake)
            self._note(error)
            raise error from None

    async def close(self) -> None:
        await self._client.aclose()

    async def _once(self, url: str, body: bytes, parse_answer: Callable[[Any], Answer]) -> Answer:
        async with self._places:
            if not self._circuit.allows():
                self._count("paused")
                raise NoAnswer(
                    "paused",
                    f"{self._settings.url} failed {self._settings.failures} times in a row and is "
                    "left alone for "
                    f"{self._settings.pause_seconds:g} s; the last time: {self._last_failure}",
                )
            try:
                answer = _read(parse_answer, await self._post(url, body), self._settings.url)
            except NoAnswer as error:
                self._note(error)
                raise
            self._circuit.note(worked=True)
            self._count("answered")
            return answer

    def _note(self, error: NoAnswer) -> None:
        self._circuit.note(worked=False)
        self._count(error.outcome)
        self._last_failure = str(error)

    async def _post(self, url: str, body: bytes) -> bytes:
        try:
            headers = {
                "Content-Type": "application/json",
                **bearer_headers(self._settings.token_variable),
            }
        except NoTokenError as error:
            raise NoAnswer("refused", str(error)) from error
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as response:
                if response.status_code != httpx.codes.OK:
                    raise self._make_refusal(response.status_code)
                answer = bytearray()
                async for chunk in response.aiter_raw():
                    answer += chunk
                    if len(answer) > self._max_answer_bytes:
                        error_message = (
                            f"{self._settings.url} answers more than {self._max_answer_bytes} bytes"
                        )
                        raise NoAnswer("unreadable", error_message)
                return bytes(answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            error_message = f"{self._settings.url} cannot be reached ({reason})"
            raise NoAnswer(
                "unreachable", error_message, may_pass=not isinstance(error, httpx.InvalidURL)
            ) from error

    def _make_refusal(self, status: int) -> NoAnswer:
        is_passing = status >= SERVER_ERROR or status in PASSING_STATUS
        may_pass = (
            is_passing if self._final_statuses is None else status not in self._final_statuses
        )
        error_message = f"{self._settings.url} answers with status {status}"
        return NoAnswer("refused", error_message, may_pass=may_pass, is_own_mistake=not is_passing)


def _read(parse_answer: Callable[[Any], Answer], content: bytes, url: str) -> Answer:
    try:
        return parse_answer(json.loads(content))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise NoAnswer(
            "unreadable", f"{url} answers with something else than was asked for ({reason})"
        ) from error
