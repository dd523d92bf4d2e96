"""One request to a service: a place, tries, a deadline, a bounded answer."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import httpx
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from rollcast.config.errors import PASSING_STATUS, SERVER_ERROR
from rollcast.config.verifiers import Remote

MAX_ANSWER_BYTES = 4 << 20
LONGEST_PAUSE_SECONDS = 8.0
"""Between two tries."""

Outcome = Literal["answered", "unreachable", "refused", "unreadable", "paused", "timeout"]
Answer = TypeVar("Answer")


class NoAnswer(Exception):  # noqa: N818  (a state that is counted, not a fault of ours)
    """Why a service gave none."""

    def __init__(self, outcome: Outcome, sentence: str, *, may_pass: bool = False) -> None:
        super().__init__(sentence)
        self.outcome: Outcome = outcome
        self.may_pass = may_pass


class Circuit:
    """A service that fails again and again is left alone for a while.

    closed --failures in a row--> open --pause--> one may try --works--> closed
    `--fails--> open
    """

    def __init__(self, failures: int, pause_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = failures
        self._pause_seconds = pause_seconds
        self._clock = clock
        self._failed = 0
        self._closed_again_at = 0.0

    def allows(self) -> bool:
        """Whether a request may be made now; of an open one, once a pause."""
        if self._failed < self._most:
            return True
        if self._clock() < self._closed_again_at:
            return False
        self._closed_again_at = self._clock() + self._pause_seconds
        return True

    def note(self, *, worked: bool) -> None:
        """What became of a request."""
        self._failed = 0 if worked else self._failed + 1
        if self._failed >= self._most:
            self._closed_again_at = self._clock() + self._pause_seconds


class Asking:
    """Requests to one service; all from one event loop."""

    def __init__(self, settings: Remote, count: Callable[[Outcome], None]) -> None:
        self._settings = settings
        self._count = count
        self._circuit = Circuit(settings.failures, settings.pause_seconds)
        self._last_failure = ""
        self._places = asyncio.Semaphore(settings.requests)
        self._client = httpx.AsyncClient(
            timeout=settings.deadline_seconds,
            limits=httpx.Limits(max_connections=settings.requests),
            headers={"Accept-Encoding": "identity"},  # a bound on the received bytes is a bound on the decoded ones
        )

    async def ask(self, url: str, body: dict[str, Any], read: Callable[[Any], Answer]) -> Answer:
        """The result of `read` on the JSON answer; `read` raises ValueError, KeyError, TypeError or IndexError for
        nonsense.

        Raises NoAnswer: after the last try, at the deadline, or immediately if the circuit is open.
        """
        tries = AsyncRetrying(
            retry=retry_if_exception(lambda error: isinstance(error, NoAnswer) and error.may_pass),
            stop=stop_after_attempt(self._settings.tries),
            wait=wait_random_exponential(multiplier=0.25, max=LONGEST_PAUSE_SECONDS),
            reraise=True,
        )
        seconds = self._settings.deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                return await tries(self._once, url, json.dumps(body).encode("utf-8", "surrogatepass"), read)
        except TimeoutError:
            error = NoAnswer("timeout", f"{self._settings.url} gave no answer within {seconds:g} s")
            self._note(error)
            raise error from None

    async def close(self) -> None:
        await self._client.aclose()

    async def _once(self, url: str, body: bytes, read: Callable[[Any], Answer]) -> Answer:
        async with self._places:
            if not self._circuit.allows():
                self._count("paused")
                raise NoAnswer(
                    "paused",
                    f"{self._settings.url} failed {self._settings.failures} times in a row and is left alone for "
                    f"{self._settings.pause_seconds:g} s; the last time: {self._last_failure}",
                )
            try:
                answer = _read(read, await self._post(url, body), self._settings.url)
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
        headers = {"Content-Type": "application/json"} | self._authorization()
        try:
            async with self._client.stream("POST", url, content=body, headers=headers) as response:
                if response.status_code != httpx.codes.OK:
                    passing = response.status_code >= SERVER_ERROR or response.status_code in PASSING_STATUS
                    said = f"{self._settings.url} answers with status {response.status_code}"
                    raise NoAnswer("refused", said, may_pass=passing)
                answer = bytearray()
                async for part in response.aiter_raw():
                    answer += part
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise NoAnswer("unreadable", f"{self._settings.url} answers more than {MAX_ANSWER_BYTES} bytes")
                return bytes(answer)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            said = f"{self._settings.url} cannot be reached ({reason})"
            raise NoAnswer("unreachable", said, may_pass=not isinstance(error, httpx.InvalidURL)) from error

    def _authorization(self) -> dict[str, str]:
        variable = self._settings.token_variable
        if variable is None:
            return {}
        token = os.environ.get(variable, "").strip()
        if not token:
            raise NoAnswer("refused", f"the environment variable {variable}, which is to hold its token, is not set")
        if not (token.isascii() and token.isprintable()):  # what refuses it later would say it aloud
            raise NoAnswer(
                "refused", f"the environment variable {variable} holds no token: it has characters of no header"
            )
        return {"Authorization": f"Bearer {token}"}


def _read(read: Callable[[Any], Answer], content: bytes, url: str) -> Answer:
    try:
        return read(json.loads(content))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise NoAnswer("unreadable", f"{url} answers with something else than was asked for ({reason})") from error
