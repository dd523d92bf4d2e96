"""Redis that is away, full, loading or failing over: every command is repeated with growing pauses,
then given up.

command --ok--------------------------------> result
   ^  |--NOGROUP (streams were lost)--> make the groups, once more
   |  |--away--> report, pause ---+            after `PATIENCE_SECONDS`: QueueAway
   +------------------------------+
"""

import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_delay,
    wait_random_exponential,
)

from rollcast.config.errors import UserError
from rollcast.connections.redis import RedisAway
from rollcast.rollouts.errors import QueueAway
from rollcast.telemetry.logging import get_logger

PATIENCE_SECONDS = 30.0
"""How long one call waits for Redis before it raises QueueAway. Callers may call again without
limit."""

_PASSING = (OutOfMemoryError, ReadOnlyError, TryAgainError, ClusterDownError, MasterDownError)
_PASSING_IN_TEXT = re.compile(
    r"\b(OOM|MISCONF|READONLY|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN)\b"
)
"""Errors without an exception of their own, or wrapped in the error of a script."""
_Result = TypeVar("_Result")
log = get_logger()


def _is_away(error: BaseException) -> bool:
    # redis-py makes the first a ConnectionError
    if isinstance(error, (AuthenticationError, NoPermissionError)):
        return False
    if isinstance(error, (*RedisAway, *_PASSING)):
        return True
    return isinstance(error, ResponseError) and bool(_PASSING_IN_TEXT.search(str(error)))


def _is_group_missing(error: ResponseError) -> bool:
    return "NOGROUP" in str(error)


class Outage:
    """Repeats commands while Redis is away, and measures for how long it was."""

    def __init__(
        self, patience_seconds: float = PATIENCE_SECONDS, *, is_logged: bool = True
    ) -> None:
        self._patience = patience_seconds
        self._is_logged = is_logged
        self._lock = threading.Lock()  # the trainer's fence comes from another thread
        self._since: float | None = None
        self._seconds = 0.0
        self._has_worked = False

    @property
    def seconds(self) -> float:
        """Seconds without Redis so far, the present outage included."""
        with self._lock:
            current = 0.0 if self._since is None else time.monotonic() - self._since
            return self._seconds + current

    def call(self, command: Callable[[], _Result], make_groups: Callable[[], Any]) -> _Result:
        """Run a command until it gets through.

        Raises QueueAway, and UserError if Redis refuses the user or a key has another type.
        """

        def once() -> _Result:
            try:
                return command()
            except ResponseError as error:
                if not _is_group_missing(error):
                    raise
                # Redis has lost the streams, and their groups with them.
                make_groups()
                return command()

        with self._translate_errors():
            result: _Result = Retrying(**self._policy())(once)
        return result

    async def call_async(
        self, command: Callable[[], Awaitable[_Result]], make_groups: Callable[[], Awaitable[Any]]
    ) -> _Result:
        """`call` for asyncio."""

        async def once() -> _Result:
            try:
                return await command()
            except ResponseError as error:
                if not _is_group_missing(error):
                    raise
                await make_groups()
                return await command()

        with self._translate_errors():
            result: _Result = await AsyncRetrying(**self._policy())(once)
        return result

    def _policy(self) -> dict[str, Any]:
        return {
            "retry": retry_if_exception(self._is_passing),
            "stop": stop_after_delay(self._patience),
            "wait": wait_random_exponential(multiplier=0.05, max=1.0),
            "after": self._begin,
            "reraise": True,
        }

    def _is_passing(self, error: BaseException) -> bool:
        """Waiting does not correct a password, except one that was right: it was changed, and this
        process is about to be replaced, or the change to be taken back.
        """
        return _is_away(error) or (self._has_worked and isinstance(error, AuthenticationError))

    def _begin(self, state: RetryCallState) -> None:
        if not self._is_logged:
            return
        with self._lock:
            if self._since is not None:
                return
            # Monotonic seconds at which the call began.
            self._since = state.start_time
        error = state.outcome.exception() if state.outcome else None
        log.warning("redis is away; waiting for it", error=str(error) or repr(error))

    def _end(self) -> None:
        with self._lock:
            self._has_worked = True
            if self._since is None:
                return
            seconds = time.monotonic() - self._since
            self._seconds += seconds
            self._since = None
        log.info("redis is back", away_seconds=round(seconds, 1))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raises QueueAway, and UserError if Redis refuses the user or a key has another type; any
        success ends the outage.
        """
        try:
            yield
        except AuthenticationError as error:
            if self._has_worked:
                raise QueueAway(f"Redis refuses a password that was right ({error})") from error
            raise UserError(
                f"redis.password: the server refuses it ({error}); set redis.password or "
                "ROLLCAST_REDIS_PASSWORD "
                "(that of a server started by `rollcast up` is in run.json of its run folder)"
            ) from error
        except NoPermissionError as error:
            raise UserError(
                f"redis.username: the user lacks a permission ({error}); give it those of its "
                "role, which docs/kubernetes.md lists under Redis users"
            ) from error
        except Exception as error:
            if "WRONGTYPE" in str(error):
                raise UserError(
                    f"redis: another program has replaced a key of the run ({error}); find the one "
                    "that is no stream (or, of :inflight and :state, no hash) with TYPE and delete "
                    "it (DEL): its tasks are then sampled again"
                ) from error
            if not _is_away(error):
                raise
            raise QueueAway(f"Redis took no command for {self._patience:.0f} s: {error}") from error
        self._end()
