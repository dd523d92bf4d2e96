"""One rollout from first to last token, through weight updates, resubmissions and interruptions.

submit -> stop | length -> next leg or done
       `-> abort: by an update before the first token of the request (resubmitted immediately, new version),
                  by `stop` (the tokens so far become a partial rollout),
                  by `restart_if` (it has tokens of lost versions: started again)

Cache salts keep the replay exact: KV blocks are shared only if one known version computed every entry. The rollouts of
a task share its prompt under "version/sequence". A rollout that may have a second leg, or continues earlier tokens, has
its own salt, and its second leg keeps the salt so that it hits its own blocks.
"""

import hashlib
import itertools
from collections.abc import Callable

from rollcast.generator.completion import Completion
from rollcast.generator.vllm.engine import Engine, EngineRequest, Sampled
from rollcast.rollouts.records import PromptTask, Purpose, Rollout, Sampling, StopReason
from rollcast.wire.version import PolicyVersion

_private_salts = itertools.count()


class RolloutSampler:
    """Samples one rollout of a task; `run` returns it finished, or partial after `stop`."""

    def __init__(self, engine: Engine, task: PromptTask, index: int, start: Rollout | None = None) -> None:
        self._engine = engine
        self._task = task
        self._index = index
        self._prompt: list[int] = task.prompt_token_ids.tolist()
        self._request: EngineRequest | None = None
        self._stopped = False
        self._restart = False
        self._salt: str | None = None
        self._requests: list[tuple[EngineRequest, int]] = []
        """Finished requests, each with the number of the completion's tokens before it."""
        self._routed_from = 0
        self.completion = Completion(task, index, engine.decode, start)

    async def run(self) -> None:
        """Sample until the completion has ended or `stop` was called. Raises the engine's errors."""
        while not self._stopped:
            if self._restart:
                self.completion = Completion(self._task, self._index, self._engine.decode)
                self._requests = []
                self._salt = None
                self._restart = False
            if self.finished:
                return
            leg = self.completion.next_leg()
            if leg is None:
                self.completion.stop_reason = StopReason.LENGTH
                return
            if leg.force_phrase:
                version = self._engine.newest_version
                assert version is not None, "nothing is claimed before the first version"
                self.completion.force_phrase(version)
            if await self._sample(leg.max_tokens) == "stop" and not self._restart:
                self.completion.stop_reason = StopReason.END
                return

    @property
    def finished(self) -> bool:
        return self.completion.stop_reason is not StopReason.RUNNING and not self._restart

    def stop(self) -> None:
        """End `run` soon, with the tokens so far."""
        self._stopped = True
        self._abort()

    def restart_if(self, lost: Callable[[PolicyVersion], bool]) -> bool:
        """Start again, in this `run` or the next, if a lost version has or may have sampled a token."""
        held = self.completion.versions
        if self._request is not None:
            held |= self._engine.versions_since(self._request)
        if not any(lost(version) for version in held):
            return False
        self._restart = True
        self._abort()
        return True

    def rollout(self) -> Rollout:
        """The record. Call it once, after `Engine.observe`, because it counts the preemptions."""
        for request, base in self._requests:
            for num_output_tokens, kept in request.rebuilds:
                self.completion.preemptions += 1
                self.completion.mark_rebuild(base + num_output_tokens, kept)
        self._requests = []
        return self.completion.rollout()

    async def _sample(self, max_tokens: int) -> str:
        position = len(self.completion.token_ids)
        if self._salt is None:
            # A later leg with this salt hits KV entries from here on, except in a block that it computes again. Experts
            # that tie may be chosen differently there, and its tokens see that choice.
            self._routed_from = self.completion.num_routed
        request = EngineRequest(
            token_ids=self._prompt + self.completion.token_ids,
            max_tokens=max_tokens,
            sampling=self._task.sampling,
            seed=_seed(self._task.sampling, self._task.sequence, self._index, position),
            salt=self._choose_salt,
            routed_from=self._routed_from,
        )
        self._request = request
        try:
            sampled: Sampled = await self._engine.sample(request)
        finally:
            self._request = None
        if sampled.request_id:
            self._requests.append((request, position))
        if sampled.finish == "abort":
            self._salt = None
        self.completion.append(sampled.token_ids, sampled.logprobs, sampled.spans)
        if sampled.token_ids and sampled.routed_experts is not None and self._task.purpose is Purpose.TRAIN:
            self.completion.record_experts(request.routed_from, sampled.routed_experts)
        if position:
            self.completion.mark_rebuild(position, sampled.num_cached_tokens)
        return sampled.finish

    def _choose_salt(self, version: PolicyVersion) -> str:
        if self._salt is None:
            self._salt = f"{version}/{self._task.sequence}"
            if self.completion.can_have_two_legs or self.completion.token_ids:
                self._salt += f"/{self._index}/{next(_private_salts)}"
        return self._salt

    def _abort(self) -> None:
        if self._request is not None:
            self._engine.abort(self._request)


def _seed(sampling: Sampling, sequence: int, index: int, position: int) -> int | None:
    """A different seed for each request of a seeded task; None if the task is not seeded."""
    if not sampling.seed:
        return None
    digest = hashlib.blake2b(f"{sampling.seed}/{sequence}/{index}/{position}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
