"""One attempt at an episode whose turns a harness takes, from the start of its program to its end.

    open -> command started | offered to outside programs
       |    -> first request    none within `reset_seconds`: failed, begins again
       |    -> ...              none for `call_seconds`: failed, begins again
       |    -> program ends -> close -> reward
       `- max_seconds over: closed, truncated

An episode without a turn is a failed environment. So is a program that ends with another code than
0, unless its budget was over: many programs end so when they are refused. Nor has it failed if the
mistake was the model's: the code is one of `model_exit_codes`, or the reward was posted before the
exit. A signal, or a request that was refused just before, is never the model's mistake.
"""

import asyncio
import time
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, cast

from rollcast.config.environments.settings import ProgramEnvironment, SessionEnvironment
from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.kinds.kind import Join, SessionProgram, TracedProgram, find_join
from rollcast.environments.traces import (
    SampledRecord,
    TraceDisagreementError,
    UnusableTraceError,
)
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.episodes.base_attempt import BaseAttempt
from rollcast.generator.episodes.parts import (
    MAX_SET_UP_SLOT_SECONDS,
)
from rollcast.generator.episodes.reward import graded_reward
from rollcast.generator.episodes.waits import GivenUpError, UnusableEpisodeError
from rollcast.rollouts.records import EpisodeEnd, Rollout
from rollcast.telemetry import episode_metrics

LOOK_SECONDS = 0.25
"""Between two looks at the deadlines of a program that runs."""
END_SECONDS = 60.0
"""Deadline for the engine to end the requests of a closed session."""


@dataclass(eq=False)
class HarnessAttempt(BaseAttempt):
    """An attempt whose turns a program takes."""

    sessions: Sessions = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = self._settings
        assert isinstance(settings, SessionEnvironment)
        self._settings: SessionEnvironment = settings
        self._join = find_join(settings)
        self.session = HarnessSession(
            self.task, settings, self.parts, self.record, self.first_start
        )
        self._program_rewards = not self.task.verifier
        self._own_numbers: Mapping[Any, Any] = {}
        """Numbers in the program's trace, not checked."""

    @property
    def start(self) -> Rollout | None:
        return self.session.start

    @property
    def has_ended_turn(self) -> bool:
        """Whether the program may have received a completed turn: only a first turn under way can
        be continued.
        """
        return self.session.has_answered or len(self.record.sequences) > 1

    @property
    def occupies_slot(self) -> bool:
        """Until its first request, so that hundreds of programs are never started together; then
        while it samples.

        A task for programs elsewhere does so only for a short time: nothing is started here, and
        perhaps none asks.
        """
        if not self.session.has_begun:
            return (
                self._settings.is_started_here
                or time.monotonic() - self._created_at < MAX_SET_UP_SLOT_SECONDS
            )
        return self.session.num_open_requests > 0

    def give_up(self) -> None:
        """Nothing more is sampled."""
        self._waits.give_up()
        self.sessions.remove(self.session)

    async def run(self) -> None:
        if self._waits.is_given_up:
            raise GivenUpError
        began_at = time.monotonic()
        self.sessions.add(self.session)
        program: SessionProgram | None = None
        try:
            with self.parts.counting(episode_metrics.EPISODES_WAITING, self._name):
                program = await self._start_program()
            self.stage = "call"
            end = await self._wait_for_end(program)
            # Turns are dropped below, which a running request must not see.
            await self._close_and_wait()
            untrained: Set[int] = frozenset()
            if program is not None and self._join is not None:
                untrained, end = self._apply_trace(self._join, cast(TracedProgram, program), end)
            self.session.drop_unread(untrained)
            if not self.record.turns:
                raise EnvironmentFailedError(self._why_no_turn(program))
            if self._program_rewards:
                self.stage = "reward"
                reward_range = self._settings.reward_range
                self.graded = graded_reward(self.session.reward, reward_range, 0.0)
            self.record.episode.metrics = self.parts.bound_metrics(self._name, self._own_numbers)
            self.record.episode.end = end
        except UnusableEpisodeError as error:
            self.fail(str(error))
        finally:
            if program is not None:
                # In the background: a program may take long to end, and a hand-over must not wait
                # for it.
                self.parts.run_in_background(self.sessions.programs.end(program))
            await self._close_and_wait()
            # Turns that are sampled at the same time count one by one, so that their sum may exceed
            # the elapsed time.
            self.record.episode.environment_seconds = max(
                time.monotonic() - began_at - self.record.episode.sampling_seconds, 0.0
            )

    async def _start_program(self) -> SessionProgram | None:
        """Start the command, or wait until a program elsewhere takes the task. None = one has."""
        session = self.session
        program: SessionProgram | None = None
        try:
            if self._settings.is_started_here:
                program = await self._waits.ask(
                    self.sessions.start(session), self._settings.reset_seconds
                )
            else:
                await self.sessions.offer(session)
                await self._waits.wait(session.claimed.wait(), self._limits.max_seconds)
        except TimeoutError:
            if not self._settings.is_started_here:
                reason = f"no program took its task within {self._limits.max_seconds:g} seconds"
            else:
                reason = f"was not started within {self._settings.reset_seconds:g} seconds"
            raise EnvironmentFailedError(reason) from None
        session.clock.start()
        return program

    async def _wait_for_end(self, program: SessionProgram | None) -> EpisodeEnd:
        """Wait until the program has ended, or a deadline ends it."""
        began_at = time.monotonic()
        session = self.session
        while True:
            await self._waits.wait(_wait_for_program(program), END_SECONDS)
            if session.failure is not None:
                raise session.failure
            if program is not None and program.has_ended:
                if self._is_mistake_of_model(program):
                    return self._end_by_mistake()
                return self._classify_end(
                    program.how_it_failed,
                    program.last_lines,
                    is_of_another=program.is_ended_by_another,
                )
            if session.end_report is not None:
                return self._classify_end("", session.end_report)
            if session.clock.remaining_seconds <= -self._seconds_to_grade():
                return EpisodeEnd.SECONDS
            if not session.has_begun and time.monotonic() - began_at > self._settings.reset_seconds:
                raise EnvironmentFailedError(
                    f"made no request within {self._settings.reset_seconds:g} seconds"
                )
            if session.has_begun and session.idle_seconds > self._settings.call_seconds:
                # A program that stops asking after a refused request has used up its budget, and
                # has not failed.
                if session.exceeded_budget is not None:
                    return session.exceeded_budget
                raise EnvironmentFailedError(
                    f"sent no request for {self._settings.call_seconds:g} seconds"
                )

    def _classify_end(
        self, failure_reason: str, program_message: str, *, is_of_another: bool = False
    ) -> EpisodeEnd:
        """The end of an episode whose program has ended. Raises EnvironmentFailedError."""
        if self.session.exceeded_budget is not None:
            return self.session.exceeded_budget
        if failure_reason:
            refused = (
                f"; it was refused: {self.session.last_refusal}"
                if self.session.last_refusal
                else ""
            )
            reason = f"{failure_reason}{refused}: {program_message or 'it printed nothing'}"
            raise EnvironmentFailedError(reason, is_of_another=is_of_another)
        if self.session.end_report:
            raise EnvironmentFailedError(f"reported that it failed: {program_message}")
        if self.session.is_last_turn_cut:
            return EpisodeEnd.TOKENS
        turns = self.record.turns
        return EpisodeEnd.DONE if turns and turns[-1].tool_calls else EpisodeEnd.ANSWERED

    def _is_mistake_of_model(self, program: SessionProgram) -> bool:
        """Whether the program says by its exit code, or by the reward before it, that the model is
        to blame.
        """
        session = self.session
        if program.exit_code is None or session.last_refusal or not session.has_answered:
            return False
        assert isinstance(self._settings, ProgramEnvironment)
        # Codes from 126 are a shell's: the program cannot be started, or a signal ended it.
        posted = session.reward is not None and program.exit_code in range(1, 126)
        return program.exit_code in self._settings.model_exit_codes or posted

    def _end_by_mistake(self) -> EpisodeEnd:
        """The end of an episode whose reward is the posted one, or 0, or a verifier's."""
        self.parts.exporter.add(episode_metrics.ENDPOINT_MISTAKES, environment=self._name)
        if self.session.reward is None:
            self.session.note_reward(self._settings.reward_range[0])
        return self._classify_end("", "")

    def _seconds_to_grade(self) -> float:
        """How long a program that gives the reward may go on after the episode's time, without
        sampling.
        """
        gives_reward = self._program_rewards or self._join is not None
        return self._settings.call_seconds if gives_reward else 0.0

    def _apply_trace(
        self, join: Join, program: TracedProgram, end: EpisodeEnd
    ) -> tuple[Set[int], EpisodeEnd]:
        """Take the trace's reward; returns the numbers of the turns that it does not train, and the
        episode's end.

        Raises UnusableEpisodeError if the trace has other turns than were sampled here.
        """
        if program.unusable:
            raise UnusableEpisodeError(program.unusable)
        trace = program.trace()
        if trace is None:
            reason = program.last_lines or "it did not end"
            raise UnusableEpisodeError(f"gave no reward after its budget was over: {reason}")
        self.session.note_reward(trace.reward)
        self._own_numbers = trace.metrics
        histories = self.session.histories
        # An answer that no client read is missing from the trace.
        unread = {turn.number for turn in histories.unread()}
        read_turns = [turn for turn in histories.turns if turn.number not in unread]
        record = SampledRecord(len(self.record.turns), read_turns, self.record.turn_tokens)
        try:
            loss = join(record, trace)
        except UnusableTraceError as error:
            if isinstance(error, TraceDisagreementError):
                self.parts.exporter.add(
                    episode_metrics.ENDPOINT_DISAGREEMENTS, environment=self._name
                )
            raise UnusableEpisodeError(str(error)) from None
        for number, ranges in loss.masked.items():
            self.record.mask_turn(number, ranges)
        if self.session.exceeded_budget is None and loss.end is not None:
            return loss.untrained, loss.end
        return loss.untrained, end

    async def _close_and_wait(self) -> None:
        """Close the session, and wait until nothing of it is sampled."""
        self.sessions.remove(self.session)
        async with asyncio.timeout(END_SECONDS):
            while self.session.num_running:
                await self.session.changed.wait()

    def _why_no_turn(self, program: SessionProgram | None) -> str:
        if self.session.last_refusal:
            return f"sampled nothing; it was refused: {self.session.last_refusal}"
        program_output = program.last_lines if program is not None else ""
        return (
            f"ended without a request to the model{f': {program_output}' if program_output else ''}"
        )


async def _wait_for_program(program: SessionProgram | None) -> None:
    if program is None:
        await asyncio.sleep(LOOK_SECONDS)
    else:
        await program.wait(LOOK_SECONDS)
