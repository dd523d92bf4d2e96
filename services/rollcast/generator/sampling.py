"""One rollout from first to last token, through weight updates, resubmissions and interruptions.

(slot) -> submit -> stop | length -> next leg or done
       `-> abort: by an update before the first token of the request (resubmitted immediately,
                     new version),
                  by `stop` (the tokens so far become a partial rollout),
                  by `restart_if` (it has tokens of lost versions: started again)

In a run that has episodes it waits for a slot of the engine as their turns do: both together are
never more than the slots. Without episodes no task is claimed beyond the slots, and nothing waits.
"""

import asyncio

from rollcast.generator.base_sampler import Sampler
from rollcast.generator.completion import Completion
from rollcast.generator.episodes.waits import GivenUpError, Waits
from rollcast.generator.sequence import SequenceSampler
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import PromptTask, Rollout, StopReason
from rollcast.wire.version import PolicyVersion


class RolloutSampler(Sampler):
    """Samples a single answer."""

    def __init__(
        self,
        engine: Engine,
        task: PromptTask,
        index: int,
        start: Rollout | None = None,
        slots: asyncio.Semaphore | None = None,
    ) -> None:
        """`slots`: of the engine, shared with the turns of episodes.

        None = the run has no episodes.
        """
        super().__init__()
        self._engine = engine
        self._task = task
        self._index = index
        self._slots = slots
        self._waits = Waits()
        self._sequence = self._begin(start)

    @property
    def completion(self) -> Completion:
        return self._sequence.completion

    @property
    def finished(self) -> bool:
        return self.completion.stop_reason is not StopReason.RUNNING and not self._restart

    @property
    def answer_token_ids(self) -> list[int]:
        return self.completion.text_token_ids

    def stop(self) -> None:
        self._waits.give_up()
        super().stop()

    def rollout(self) -> Rollout:
        return self._sequence.rollout()

    @property
    def _versions(self) -> set[PolicyVersion]:
        return self._sequence.versions

    def _begin_again(self) -> None:
        self._sequence = self._begin(None)
        self._restart = False

    def _abort(self) -> None:
        self._sequence.abort()

    async def _sample(self) -> None:
        """Sample in a slot."""
        if self._slots is not None:
            try:
                await self._waits.wait(self._slots.acquire())
            except GivenUpError:
                return
        try:
            finish = await self._sequence.turn()
        finally:
            if self._slots is not None:
                self._slots.release()
        # The end of tokens that are thrown away does not count.
        if self._restart:
            return
        if finish == "stop":
            self.completion.stop_reason = StopReason.END
        elif finish == "length":
            self.completion.stop_reason = StopReason.LENGTH

    def _begin(self, start: Rollout | None) -> SequenceSampler:
        completion = Completion(self._task, self._index, self._engine.decode, start)
        return SequenceSampler(self._engine, self._task.prompt_token_ids.tolist(), completion)
