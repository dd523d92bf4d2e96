"""One session: the rollout of a dispatched task that a program outside samples, request by request.

    opened -> first request -> requests ... -> closed        after it every request is refused
                                 `- budget of tokens, turns or seconds over: refused, unless the
                                    next history fits again

Requests reach the engine through the rollout's `EpisodeRecord` alone. Lives on the engine's loop.
"""

import asyncio
import hmac
import secrets
import time
from collections.abc import Callable, Set
from dataclasses import dataclass

from rollcast.config.environments.settings import SessionEnvironment
from rollcast.generator.endpoint.histories import Histories
from rollcast.generator.endpoint.refusals import RefusedRequestError, budget_over
from rollcast.generator.endpoint.remembered_chats import RememberedChats
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.episodes.waits import UnusableEpisodeError
from rollcast.rollouts.records import EpisodeEnd, EpisodeTask, Rollout, Sampling
from rollcast.telemetry import episode_metrics

OVER = {
    EpisodeEnd.TOKENS: "the episode's budget of tokens is used up",
    EpisodeEnd.TURNS: "the episode's budget of turns is used up",
    EpisodeEnd.SECONDS: "the episode's time is over",
}


@dataclass(frozen=True, slots=True)
class SessionTask:
    """The task of a session."""

    environment: str
    limits: EpisodeTask
    sampling: Sampling
    max_tokens: int
    """Budget of the whole episode."""
    row: str
    """JSON text of the row, as environments get it."""
    rewards: bool
    """Whether the program reports the reward, and no verifier gives it."""


class HarnessSession:
    """A session from its opening to `close`."""

    def __init__(
        self,
        task: SessionTask,
        settings: SessionEnvironment,
        parts: EpisodeParts,
        record: EpisodeRecord,
    ) -> None:
        self.id = secrets.token_hex(8)
        self.token = secrets.token_urlsafe(32)
        self.task = task
        self.settings = settings
        self.parts = parts
        self.record = record
        self.histories = Histories()
        self.responses = RememberedChats()
        """By the id of a response, the chat that ends with it; for requests that name it as the
        previous one."""
        self.changed = asyncio.Condition()
        """Notified whenever a request has ended."""
        self.deadline = float("inf")
        """Monotonic seconds, moved by waits for a slot: what runs then is cut, and nothing is
        sampled after it."""
        self._slot_seconds = task.limits.max_seconds
        """How long its requests may still wait for slots."""
        self._slot_waits: dict[object, float] = {}
        """Requests that wait for a slot, each with the monotonic second of its beginning."""
        self.start: Rollout | None = None
        """A former owner's part of the first turn."""
        self.has_begun = False
        """Whether any request has arrived."""
        self.claimed = asyncio.Event()
        """Set when an external program has claimed the session."""
        self.has_answered = False
        """Whether a turn has ended that the close of the session did not cut."""
        self.last_refusal = ""
        """Why its last refused request was refused."""
        self.is_closed = False
        self.exceeded_budget: EpisodeEnd | None = None
        """The budget for want of which the last request was cut or refused."""
        self.is_last_turn_cut = False
        """Whether the last turn was cut by a budget of tokens, its request's own max_tokens
        included."""
        self.reward: float | None = None
        """The reward that the program reported, in the environment's own range, not checked."""
        self.failure: Exception | None = None
        """The error of the engine, or of a wait for its slots, for the claim loop."""
        self.end_report: str | None = None
        """An outside program has reported its end: empty, or why it failed. None = it has not."""
        self._running: dict[object, int] = {}
        """Requests under way, each with the tokens that it may still sample."""
        self._cancels: dict[object, Callable[[], object]] = {}
        self._idle_since = time.monotonic()
        self._num_calls = 0
        self._num_untrained = 0
        """Requests that the episode's program had answered without being trained on."""

    def knows(self, token: bytes) -> bool:
        """Whether it is the session's token, compared in constant time."""
        return hmac.compare_digest(token, self.token.encode())

    @property
    def num_running(self) -> int:
        """Requests that sample, or wait for a slot."""
        return len(self._running)

    @property
    def num_open_requests(self) -> int:
        """Requests that are not answered."""
        return len(self._cancels)

    @property
    def idle_seconds(self) -> float:
        """Since the last answer, if no request is under way."""
        return 0.0 if self._cancels else time.monotonic() - self._idle_since

    def enter(self, request: object, cancel: Callable[[], object]) -> None:
        """A request has come; `cancel` ends its waits. Raises RefusedRequestError."""
        self.check_open()
        self.has_begun = True
        self._cancels[request] = cancel

    def enter_untrained(self, request: object, cancel: Callable[[], object]) -> None:
        """A request has come that is answered in a session of its own.

        Raises RefusedRequestError.
        """
        self._num_untrained += 1
        if self._num_untrained > self.settings.untrained_requests:
            raise RefusedRequestError(
                f"this episode's {self.settings.untrained_requests} untrained requests are used "
                "up; more need a larger "
                "untrained_requests of the environment",
                code="untrained_requests",
            )
        self.enter(request, cancel)

    def leave(self, request: object) -> None:
        """A request is answered."""
        del self._cancels[request]
        self._idle_since = time.monotonic()

    @property
    def was_ended_early(self) -> bool:
        """Whether it was closed before its deadline: tokens sampled after that answer no client."""
        return self.is_closed and time.monotonic() < self.deadline

    def check_open(self) -> None:
        """Raises RefusedRequestError if nothing may be sampled any more."""
        # A program elsewhere reports its end some moments before the session is closed.
        if self.is_closed or self.end_report is not None:
            raise RefusedRequestError("this session has ended", 404, "session_ended")
        if self.is_over:
            raise self.refuse_over_budget(EpisodeEnd.SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether its seconds are over.

        Waits for a slot of the engine are not its fault and do not count.
        """
        return self.is_over_for(0.0)

    def is_over_for(self, seconds: float) -> bool:
        """Whether its seconds have been over for this long."""
        now_seconds = time.monotonic()
        # The deadline moves when a wait for a slot ends, so waits that go on are added here.
        return now_seconds >= self.deadline + seconds + sum(
            now_seconds - began for began in self._slot_waits.values()
        )

    async def take_slot(self, request: object) -> None:
        """Wait for a slot of the engine.

        Raises UnusableEpisodeError if its waits together were too long.
        """
        began = time.monotonic()
        self._slot_waits[request] = began
        try:
            async with asyncio.timeout(max(self._slot_seconds, 0.0)):
                await self.parts.slots.acquire()
        except TimeoutError:
            waited = self.task.limits.max_seconds
            raise UnusableEpisodeError(
                f"no slot of the engine was free in the {waited:g} seconds of waiting"
            ) from None
        finally:
            del self._slot_waits[request]
            waited = time.monotonic() - began
            self._slot_seconds -= waited
            self.deadline += waited

    def refuse_over_budget(self, end: EpisodeEnd) -> RefusedRequestError:
        """Note the budget that is over; returns the refusal of a request for want of it."""
        self.exceeded_budget = end
        return budget_over(OVER[end])

    async def reserve(self, request: object, max_tokens: int | None) -> int:
        """Wait until the episode's budget has room next to the requests that run; returns the
        tokens of this one.

        A request that states none, or more than is left, may use its share of what remains
        (`parallel_requests`). Raises RefusedRequestError.
        """
        async with self.changed:
            while True:
                self.check_open()
                if len(self.record.turns) + self.num_running >= self.task.limits.max_turns:
                    raise self.refuse_over_budget(EpisodeEnd.TURNS)
                remaining = self.task.max_tokens - self.record.num_tokens
                room = remaining - sum(self._running.values())
                # Requests that run may use fewer tokens than they reserved, so the budget is over
                # only when none runs.
                if not self._running and room <= 0:
                    raise self.refuse_over_budget(EpisodeEnd.TOKENS)
                share = max(1, remaining // self.settings.parallel_requests)
                tokens = share if max_tokens is None or max_tokens > remaining else max_tokens
                if not self._running or tokens <= room:
                    break
                await self.changed.wait()
            tokens = min(tokens, room)
            self._running[request] = tokens
            return tokens

    def lower_reservation(self, request: object, tokens: int) -> int:
        """The tokens that a request may sample after its history was given: given tokens count in
        the budget too.

        Raises RefusedRequestError if none are left.
        """
        other_reservations = sum(self._running.values()) - self._running[request]
        self._running[request] = min(
            tokens, self.task.max_tokens - self.record.num_tokens - other_reservations
        )
        if self._running[request] <= 0:
            raise self.refuse_over_budget(EpisodeEnd.TOKENS)
        return self._running[request]

    async def give_back(self, request: object) -> None:
        """The request samples no more."""
        async with self.changed:
            self._running.pop(request, None)
            self.changed.notify_all()

    def close(self) -> None:
        """End every request soon, and refuse later ones."""
        self.is_closed = True
        self.record.abort()
        for cancel in list(self._cancels.values()):
            cancel()

    def next_call_ids(self, count: int) -> list[str]:
        """Ids of calls. Nine letters and digits, because Mistral's template takes no others."""
        first = self._num_calls
        self._num_calls += count
        return [f"call{number:05}" for number in range(first, self._num_calls)]

    def count_sequence(self, reason: str) -> None:
        """Count a further sequence: format, rewritten, forked, retried or new."""
        self.parts.exporter.add(
            episode_metrics.ENDPOINT_SEQUENCES, environment=self.task.environment, reason=reason
        )

    def drop_unread(self, untrained: Set[int] = frozenset()) -> None:
        """Take turns that no client read out of the record, and others by their numbers.

        Call it once, after `close` and all requests.
        """
        unread = self.histories.unread()
        if unread:
            self.parts.exporter.add(
                episode_metrics.ENDPOINT_UNREAD, len(unread), environment=self.task.environment
            )
        self.record.drop_turns({turn.number for turn in unread} | untrained)
