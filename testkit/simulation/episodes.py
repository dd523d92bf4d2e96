"""The simulated pipeline with rollouts of several turns: a tool call between two turns holds no
slot of the engine.

    claimed --> turn waits for a slot --> samples --> tool call --> next turn waits ...
            --> last turn ended

A group is ready when all its rollouts have ended.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from rollcast.simulation.fleet import Delays, SimulatedFleet
from rollcast.simulation.generator import Attempt, SimulatedGenerator
from rollcast.simulation.pipeline import Pipeline
from rollcast.simulation.workload import Task


@dataclass(frozen=True, slots=True)
class SimulatedTurn:
    tokens: float
    call_seconds: float
    """Duration of the tool call after it. The last turn makes none."""


Turns = Callable[[Task, int], Sequence[SimulatedTurn]]
"""The turns of a task's rollout with an index; at least one, and the same at every call."""


@dataclass(slots=True, eq=False)
class _Episode:
    attempt: Attempt
    """The attempt of its whole group."""
    generator: SimulatedGenerator
    turns: deque[SimulatedTurn]


class EpisodeFleet(SimulatedFleet):
    """A generator has at most `max_episodes` in flight.

    Their turns get its slots in the order in which they ask.
    """

    def __init__(self, *arguments: Any, turns: Turns, max_episodes: int, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._turns = turns
        self._max_episodes = max_episodes
        self._in_flight: defaultdict[int, int] = defaultdict(int)
        self._waiting: defaultdict[int, deque[_Episode]] = defaultdict(deque)
        self._sampling: dict[int, _Episode] = {}
        """By the number of the turn's own attempt."""
        self._numbers = count(start=-1, step=-1)
        """Turns are attempts of the engine; those of groups count from 0 upwards."""

    def claim(self) -> None:
        able = self._claimants()
        while self.queue and able:
            generator = min(able, key=lambda member: self._in_flight[member.name])
            if self._in_flight[generator.name] + len(self.queue[0].remaining) > self._max_episodes:
                return
            self._begin(self.queue.popleft(), generator)

    def _begin(self, attempt: Attempt, generator: SimulatedGenerator) -> None:
        attempt.started_at = self._events.now_seconds
        attempt.oldest = attempt.recorded = generator.step
        self._in_flight[generator.name] += len(attempt.remaining)
        for index in range(len(attempt.remaining)):
            turns = deque(self._turns(attempt.task, index))
            self._waiting[generator.name].append(_Episode(attempt, generator, turns))
        self._fill(generator)

    def _fill(self, generator: SimulatedGenerator) -> None:
        waiting = self._waiting[generator.name]
        while waiting and generator.running < generator.engine.slots:
            episode = waiting.popleft()
            turn = Attempt(next(self._numbers), episode.attempt.task, [episode.turns[0].tokens])
            self._sampling[turn.sequence] = episode
            generator.start(turn, self._events.now_seconds)
        self._watch(generator)

    def _rollout_ends(self, generator: SimulatedGenerator, changes: int) -> None:
        if generator.changes != changes:
            return
        turn = generator.finish_next(self._events.now_seconds)
        assert turn is not None, "a turn is an attempt of one rollout"
        episode = self._sampling.pop(turn.sequence)
        call = episode.turns.popleft()
        if episode.turns:
            self._events.schedule_after(call.call_seconds, lambda: self._resume_episode(episode))
        else:
            self._end_episode(episode)
        self._fill(generator)
        self.claim()

    def _resume_episode(self, episode: _Episode) -> None:
        self._waiting[episode.generator.name].append(episode)
        self._fill(episode.generator)

    def _end_episode(self, episode: _Episode) -> None:
        attempt = episode.attempt
        self._in_flight[episode.generator.name] -= 1
        attempt.remaining.pop()
        if not attempt.remaining:
            attempt.ready = True
            self._finished(attempt)


@dataclass(frozen=True, slots=True)
class Settled:
    """A group that was used or filtered."""

    attempt: Attempt
    seconds: float
    """Time from its claim to its use."""
    staleness: int
    """Steps from the weights of its claim to its use."""
    steps_to_end: int
    """Steps from the weights of its claim to the end of its last episode."""


class EpisodePipeline(Pipeline):
    """Attributes: settled: every settled group, in order."""

    def __init__(self, *, turns: Turns, max_episodes: int, **settings: Any) -> None:
        self._turns = turns
        self._max_episodes = max_episodes
        self.settled: list[Settled] = []
        self._ended_at: dict[int, int] = {}
        """Step at which a group's last episode ended, by the group's sequence."""
        super().__init__(**settings)

    def _make_fleet(self, delays: Delays, seed: int) -> EpisodeFleet:
        return EpisodeFleet(
            self._events,
            delays,
            turns=self._turns,
            max_episodes=self._max_episodes,
            seed=seed,
            finished=self._record_group_end,
            changed=self._decide,
        )

    def _record_group_end(self, attempt: Attempt) -> None:
        self._ended_at[attempt.sequence] = self.step
        super()._record_group_end(attempt)

    def _settle(self, batch: list[Attempt]) -> None:
        for attempt in batch:
            assert attempt.started_at is not None
            assert attempt.oldest is not None
            self.settled.append(
                Settled(
                    attempt,
                    seconds=self.now - attempt.started_at,
                    staleness=self.step - attempt.oldest,
                    steps_to_end=self._ended_at.pop(attempt.sequence) - attempt.oldest,
                )
            )
        super()._settle(batch)
