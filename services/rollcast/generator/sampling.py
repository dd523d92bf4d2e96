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
from collections.abc import Callable

from rollcast.generator.completion import Completion
from rollcast.generator.episodes.waits import GivenUpError, Waits
from rollcast.generator.grading import Graded
from rollcast.generator.sequence import SequenceSampler
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import Finish
from rollcast.rollouts.records import PromptTask, Rollout, StopReason
from rollcast.wire.version import PolicyVersion


class RolloutSampler:
    """Samples one rollout of a task; `run` returns it finished, or partial after `stop`."""

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
        self._engine = engine
        self._task = task
        self._index = index
        self._slots = slots
        self._waits = Waits()
        self._stopped = False
        self._restart = False
        self._sequence = self._begin(start)

    @property
    def completion(self) -> Completion:
        return self._sequence.completion

    async def run(self) -> None:
        """Sample until the completion has ended or `stop` was called.

        Raises the engine's errors.
        """
        while not self._stopped:
            if self._restart:
                self._sequence = self._begin(None)
                self._restart = False
            if self.finished:
                return
            finish = await self._turn()
            # The end of tokens that are thrown away does not count.
            if self._restart:
                continue
            if finish == "stop":
                self.completion.stop_reason = StopReason.END
            elif finish == "length":
                self.completion.stop_reason = StopReason.LENGTH

    @property
    def finished(self) -> bool:
        return self.completion.stop_reason is not StopReason.RUNNING and not self._restart

    @property
    def occupies_slot(self) -> bool:
        return not self.finished

    @property
    def num_kv_tokens(self) -> int:
        """None: it occupies a slot until it is finished."""
        return 0

    @property
    def verdict(self) -> Graded | None:
        """None: a verifier gives it."""
        return None

    @property
    def answer_token_ids(self) -> list[int]:
        return self.completion.text_token_ids

    def stop(self) -> None:
        """End `run` soon, with the tokens so far."""
        self._stopped = True
        self._waits.give_up()
        self._sequence.abort()

    def restart_if(self, lost: Callable[[PolicyVersion], bool]) -> bool:
        """Start again, in this `run` or the next, if a lost version has or may have sampled a
        token.
        """
        if not any(lost(version) for version in self._sequence.versions):
            return False
        self._restart = True
        self._sequence.abort()
        return True

    def rollout(self) -> Rollout:
        """The record. Call it once, after `Engine.observe`, because it counts the preemptions."""
        return self._sequence.rollout()

    async def _turn(self) -> Finish:
        """Sample in a slot. "abort" = `stop` or `restart_if` was called."""
        if self._slots is None:
            return await self._sequence.turn()
        try:
            await self._waits.wait(self._slots.acquire())
        except GivenUpError:
            return "abort"
        try:
            return await self._sequence.turn()
        finally:
            self._slots.release()

    def _begin(self, start: Rollout | None) -> SequenceSampler:
        completion = Completion(self._task, self._index, self._engine.decode, start)
        return SequenceSampler(self._engine, self._task.prompt_token_ids.tolist(), completion)
