"""A running task: its G concurrent rollouts, each graded as soon as it ends."""

import asyncio
import dataclasses
import time
from collections.abc import Callable
from typing import Any

from rollcast.config.errors import UserError
from rollcast.generator.grading import Graded, GradingThreads
from rollcast.generator.samplers import Samplers
from rollcast.generator.shared_fields import shared_fields
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import (
    DispatchedPrompt,
    GradingStatus,
    PromptTask,
    Rollout,
    RolloutGroup,
)
from rollcast.wire.version import PolicyVersion


class ActiveGroup:
    """run() -> finished (group()) or stopped (unfinished_task()).

    Continues rollouts of a former owner.
    """

    def __init__(
        self, claimed: Claimed, engine: Engine, grader: GradingThreads, samplers: Samplers
    ) -> None:
        self.claimed = claimed
        self.stopped = False
        self._engine = engine
        self._grader = grader
        self._started_at = time.time()
        task = claimed.task
        former = {rollout.index: rollout for rollout in task.rollouts}
        self._gradings: set[asyncio.Task[Any]] = set()
        self._refusal = samplers.refusal(task)
        indices = range(0 if self._refusal else task.num_rollouts)
        self._samplers = [samplers.sampler(task, index, former.get(index)) for index in indices]
        self._graded: dict[int, Graded] = {
            index: Graded(rollout.reward, rollout.grading_status, rollout.grading_seconds)
            for index, rollout in former.items()
            if rollout.grading_status is not GradingStatus.UNGRADED
        }

    @property
    def num_slots(self) -> int:
        """Slots that it occupies."""
        return sum(sampler.occupies_slot for sampler in self._samplers)

    @property
    def num_unfinished(self) -> int:
        """Rollouts in flight, in a slot or not."""
        return sum(not sampler.finished for sampler in self._samplers)

    @property
    def num_kv_tokens(self) -> int:
        """Tokens whose KV its episodes want kept."""
        return sum(sampler.num_kv_tokens for sampler in self._samplers)

    @property
    def finished(self) -> bool:
        return len(self._graded) == len(self._samplers)

    async def run(self) -> None:
        """Run until every rollout is graded, or `stop`.

        Raises the errors of engine and grader, and UserError.
        """
        if self._refusal:
            raise UserError(self._refusal)
        # Once more for rollouts that were restarted while they were graded.
        while not self.stopped and not self.finished:
            async with asyncio.TaskGroup() as rollouts:
                for index in range(len(self._samplers)):
                    if index not in self._graded:
                        rollouts.create_task(self._run_one(index))

    def stop(self) -> None:
        """End `run` soon: unfinished rollouts become partial, ungraded ones are graded by the next
        owner.
        """
        self.stopped = True
        for grading in self._gradings:
            grading.cancel()
        for sampler in self._samplers:
            sampler.stop()

    def restart_if(self, lost: Callable[[PolicyVersion], bool]) -> int:
        """Restart rollouts that hold tokens of lost versions; returns how many."""
        count = 0
        for index, sampler in enumerate(self._samplers):
            if sampler.restart_if(lost):
                # A verdict on tokens that are thrown away.
                self._graded.pop(index, None)
                count += 1
        return count

    async def group(self, generator: str) -> RolloutGroup:
        """The finished group for publishing."""
        rollouts = await self._records()
        task = self.claimed.task
        versions = [rollout.oldest_version for rollout in rollouts]
        group_fields = shared_fields(task, DispatchedPrompt) | {
            "rollouts": rollouts,
            # Without a token the group counts as started by the version of its claim.
            "first_version": min(filter(None, versions), default=self.claimed.first_version),
            "generator": generator,
            "started_at": self._started_at,
            "finished_at": time.time(),
        }
        return RolloutGroup(**group_fields)

    async def unfinished_task(self) -> PromptTask:
        """The task with its rollouts so far, for the next owner."""
        rollouts = [rollout for rollout in await self._records() if rollout.num_tokens]
        return dataclasses.replace(self.claimed.task, rollouts=rollouts)

    async def _run_one(self, index: int) -> None:
        sampler = self._samplers[index]
        await sampler.run()
        if not sampler.finished:
            return
        graded = sampler.verdict
        if graded is None:
            if self.stopped:
                return
            grading = asyncio.create_task(
                self._grader.grade(self.claimed.task, sampler.answer_token_ids)
            )
            self._gradings.add(grading)
            grading.add_done_callback(self._gradings.discard)
            graded = await grading
        # Not finished any more: the rollout was restarted while it was graded.
        if sampler.finished:
            self._graded[index] = graded

    async def _records(self) -> list[Rollout]:
        # Preemptions so far, which the records of the samplers need.
        await self._engine.observe()
        rollouts = [sampler.rollout() for sampler in self._samplers]
        for index, graded in self._graded.items():
            rollouts[index].reward = graded.reward
            rollouts[index].grading_status = graded.status
            rollouts[index].grading_seconds = graded.seconds
        return rollouts
