"""One session: the rollout of a dispatched task that a program outside samples, request by request.

    opened -> first request -> requests ... -> closed        after it every request is refused
                                 `- budget of tokens, turns or seconds over: refused, unless the
                                    next history fits again

Requests reach the engine through the rollout's `EpisodeRecord` alone. Lives on the engine's loop.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Set
from contextlib import asynccontextmanager, contextmanager

from rollcast.chat.messages import new_call_ids
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.generator.endpoint.histories import Histories, RecordedTurn
from rollcast.generator.endpoint.refusals import RefusedRequestError, budget_over
from rollcast.generator.endpoint.remembered_chats import RememberedChats
from rollcast.generator.episodes.clock import EpisodeClock
from rollcast.generator.episodes.parts import EpisodeParts
from rollcast.generator.episodes.record import EpisodeRecord
from rollcast.generator.episodes.waits import UnusableEpisodeError
from rollcast.generator.vllm.engine_request import BadRequestError, Finish
from rollcast.rollouts.records import EpisodeEnd, PromptTask, Rollout
from rollcast.telemetry import episode_metrics
from rollcast.telemetry.metric import Metric

OVER = {
    EpisodeEnd.TOKENS: "the episode's budget of tokens is used up",
    EpisodeEnd.TURNS: "the episode's budget of turns is used up",
    EpisodeEnd.SECONDS: "the episode's time is over",
}


class HarnessSession:
    """A session from its opening to `close`."""

    def __init__(
        self,
        task: PromptTask,
        settings: SessionEnvironment,
        parts: EpisodeParts,
        record: EpisodeRecord,
        start: Rollout | None = None,
    ) -> None:
        """`start`: a former owner's part of the first turn."""
        assert task.episode is not None
        self.id = secrets.token_hex(8)
        self.token = secrets.token_urlsafe(32)
        self.task = task
        self.environment = task.episode.environment
        self.settings = settings
        self.parts = parts
        self.record = record
        self.histories = Histories()
        self.call_ids = new_call_ids()
        self.responses = RememberedChats()
        """By the id of a response, the chat that ends with it; for requests that name it as the
        previous one."""
        self.changed = asyncio.Event()
        """Set for a moment whenever a request has ended."""
        self.clock = EpisodeClock(parts.slots, task.episode.max_seconds)
        self.start = start
        """The part of a former owner, until the first sequence begins with it or without it."""
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
        self._ends: dict[object, Callable[[], object]] = {}
        """Requests that are not answered, each with what ends its wait or its sampling."""
        self._timers: dict[object, asyncio.TimerHandle] = {}
        self._idle_since = time.monotonic()
        self._max_turns = task.episode.max_turns
        self._num_untrained = 0
        """Requests that the episode's program had answered without being trained on."""
        self.untrained_lock = asyncio.Lock()
        """Held by the one of them that samples or waits for a place, so that a program which sends
        many leaves places to other episodes."""

    @property
    def num_running(self) -> int:
        """Requests that sample, or wait for a slot."""
        return len(self._running)

    @property
    def num_open_requests(self) -> int:
        """Requests that are not answered."""
        return len(self._ends)

    @property
    def idle_seconds(self) -> float:
        """Since the last answer, if no request is under way."""
        return 0.0 if self._ends else time.monotonic() - self._idle_since

    @contextmanager
    def untrained_request(self, request: object, end: Callable[[], object]) -> Iterator[None]:
        """A request that is answered in a session of its own. Raises RefusedRequestError."""
        self._num_untrained += 1
        if self._num_untrained > self.settings.untrained_requests:
            raise RefusedRequestError(
                f"this episode's {self.settings.untrained_requests} untrained requests are used "
                "up; more need a larger untrained_requests of the environment",
                code="untrained_requests",
            )
        self.check_open()
        self.has_begun = True
        self._ends[request] = end
        try:
            yield
        finally:
            del self._ends[request]
            self._idle_since = time.monotonic()

    def check_open(self) -> None:
        """Raises RefusedRequestError if nothing may be sampled any more."""
        # A program elsewhere reports its end some moments before the session is closed.
        if self.is_closed or self.end_report is not None:
            raise RefusedRequestError("this session has ended", 404, "session_ended")
        if self.clock.remaining_seconds <= 0.0:
            raise self.refuse_over_budget(EpisodeEnd.SECONDS)

    @asynccontextmanager
    async def turn(
        self, request: object, end: Callable[[], object], max_tokens: int | None
    ) -> AsyncIterator[int]:
        """The turn of a request, in a slot of the engine; gives the tokens that it may sample.

        `end`: ends the waits or the sampling of the request. It is called at the deadline, and when
        the session is closed. Raises RefusedRequestError, and what the engine raises if it is dead.
        """
        self.check_open()
        self.has_begun = True
        self._ends[request] = end
        seconds = min(self.clock.remaining_seconds, 1e9)
        loop = asyncio.get_running_loop()
        self._timers[request] = loop.call_later(seconds, self._end_in_time, request)
        try:
            tokens = await self.reserve(request, max_tokens)
            await self.clock.take_slot()
            try:
                self.check_open()
                yield tokens
            finally:
                self.parts.slots.release()
        except BadRequestError as error:
            raise RefusedRequestError(f"the engine refused it: {error}") from error
        except UnusableEpisodeError as error:
            self.failure = error
            raise RefusedRequestError(str(error), 503, "no_slot") from None
        except RefusedRequestError:
            raise
        except Exception as error:
            self.failure = error
            raise
        finally:
            self._timers.pop(request).cancel()
            self._running.pop(request, None)
            del self._ends[request]
            self._idle_since = time.monotonic()
            self.changed.set()  # wakes all that wait now
            self.changed.clear()

    def _end_in_time(self, request: object) -> None:
        """End a request at the deadline, which others move while they wait for a slot."""
        seconds = self.clock.remaining_seconds
        if seconds <= 0.0:
            self._ends[request]()
            return
        # Between two looks at a deadline that a wait for a slot moves
        seconds = max(seconds, 0.05)
        loop = asyncio.get_running_loop()
        self._timers[request] = loop.call_later(seconds, self._end_in_time, request)

    def refuse_over_budget(self, end: EpisodeEnd) -> RefusedRequestError:
        """Note the budget that is over; returns the refusal of a request for want of it."""
        self.exceeded_budget = end
        return budget_over(OVER[end])

    def refuse_too_long(self, history_description: str) -> RefusedRequestError:
        """Note a history that leaves no token to sample; returns the refusal of its request."""
        self.exceeded_budget = EpisodeEnd.TOKENS
        return budget_over(
            f"{history_description} leaves no room: an episode may have "
            f"{self.task.length.max_tokens} tokens, and one sequence "
            f"{self.parts.max_sequence_tokens}"
        )

    async def reserve(self, request: object, max_tokens: int | None) -> int:
        """Wait until the episode's budget has room next to the requests that run; returns the
        tokens of this one.

        A request that states none, or more than is left, may use its share of what remains
        (`parallel_requests`). Raises RefusedRequestError.
        """
        while True:
            self.check_open()
            if len(self.record.turns) + len(self._running) >= self._max_turns:
                raise self.refuse_over_budget(EpisodeEnd.TURNS)
            remaining = self.record.remaining_tokens()
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
        self._running[request] = min(tokens, self.record.remaining_tokens() - other_reservations)
        if self._running[request] <= 0:
            raise self.refuse_over_budget(EpisodeEnd.TOKENS)
        return self._running[request]

    def note_turn(
        self, finish: Finish, num_tokens: int, max_tokens: int | None, *, is_abandoned: bool
    ) -> None:
        """Note how a request ended; `num_tokens` of at most `max_tokens` were sampled."""
        # Tokens that are sampled after the close answer no client.
        was_ended_early = self.is_closed and time.monotonic() < self.clock.deadline
        is_cut = finish == "abort"
        self.histories.turns[-1].is_abandoned = is_abandoned or (is_cut and was_ended_early)
        self.has_answered |= not (is_cut and self.is_closed)
        self.last_refusal = ""
        self.is_last_turn_cut = finish == "length"
        self.exceeded_budget = None
        if is_cut and not self.is_closed and not is_abandoned:
            self.exceeded_budget = EpisodeEnd.SECONDS
        elif finish == "length" and (max_tokens is None or num_tokens < max_tokens):
            self.exceeded_budget = EpisodeEnd.TOKENS

    def close(self) -> None:
        """End every request soon, and refuse later ones."""
        self.is_closed = True
        self.record.abort()
        for end in list(self._ends.values()):
            end()

    def begin_sequence(self, prompt: list[int], reason: str) -> int:
        """Begin a sequence; `reason` (format, rewritten, forked, retried or new) is counted if it
        is a further one.

        Raises RefusedRequestError if it is too long.
        """
        if len(prompt) >= self.parts.max_sequence_tokens:
            raise self.refuse_too_long(f"a history of {len(prompt)} tokens")
        start = self.start
        self.start = None
        if self.record.sequences:
            self._count(episode_metrics.ENDPOINT_EXTRA_SEQUENCES, reason=reason)
            return self.record.begin_sequence(prompt)
        usable_start = self.parts.usable_start(self.task, start, prompt)
        return self.record.begin_sequence(prompt, usable_start)

    def extend_sequence(self, turn: RecordedTurn, added_tokens: list[int]) -> int:
        """Give tokens to the sequence of a turn, which is its last.

        Raises RefusedRequestError if none would be left.
        """
        recorded = self.record.turns[turn.number]
        sequence = recorded.sequence
        sampler = self.record.sequences[sequence]
        if self.record.remaining_tokens(sequence) <= len(added_tokens):
            num_tokens = sampler.num_tokens + len(added_tokens)
            raise self.refuse_too_long(f"a history of {num_tokens} tokens")
        turn.is_extended = True
        self.record.record_answer(
            turn.number,
            tool_calls=recorded.tool_calls,
            malformed_calls=recorded.malformed_calls,
            environment_seconds=time.monotonic() - turn.answered_at,
        )
        sampler.completion.given_token_ids += added_tokens
        return sequence

    def match_tokens(
        self, token_ids: list[int], *, new: str, forked: str
    ) -> tuple[int, RecordedTurn | None]:
        """Extend the longest recorded turn that the tokens begin with, or begin a sequence.

        `new`, `forked`: the reason of a further sequence if no turn is found, or one that cannot be
        extended. Returns the sequence and the turn. Raises RefusedRequestError.
        """
        longest_match = self.histories.longest_of_tokens(token_ids)
        if longest_match is None:
            return self.begin_sequence(token_ids, new), None
        turn, length = longest_match
        turn.has_followers = True
        if turn.is_extended or turn.is_abandoned:
            return self.begin_sequence(token_ids, forked), turn
        return self.extend_sequence(turn, token_ids[length:]), turn

    def note_refused(self, refusal: RefusedRequestError) -> None:
        """Count a refused request. Thread-safe."""
        self._count(episode_metrics.ENDPOINT_REFUSED, code=refusal.code)
        self.last_refusal = refusal.sentence

    def note_reward(self, reward: float | None) -> None:
        """Note the reward that the program reported, or that its trace has. Thread-safe."""
        self.reward = reward

    def note_end(self, failure: str) -> None:
        """Note that an outside program has ended, and why it failed; empty = it has not.

        Thread-safe.
        """
        self.end_report = failure

    def drop_unread(self, untrained: Set[int] = frozenset()) -> None:
        """Take turns that no client read out of the record, and others by their numbers.

        Call it once, after `close` and all requests.
        """
        unread = self.histories.unread()
        if unread:
            self._count(episode_metrics.ENDPOINT_UNREAD, len(unread))
        self.record.drop_turns({turn.number for turn in unread} | untrained)

    def _count(self, metric: Metric, amount: int = 1, **labels: str) -> None:
        self.parts.exporter.add(metric, amount, environment=self.environment, **labels)
