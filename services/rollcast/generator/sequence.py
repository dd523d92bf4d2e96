"""One token sequence and its requests to the engine, through weight updates and resubmissions.

    turn: leg -> stop | length -> (phrase) -> leg ... -> ended
           |       -> give (tokens of an environment) -> turn ...
           `-> abort: by an update before the first token of the request (asked again immediately),
                      or by `abort`

Cache salts keep the replay exact: KV blocks are shared only if one known version computed every
entry. The rollouts of a task share its prompt under "version/sequence". A sequence that may have a
second leg, or continues earlier tokens, has its own salt, and its later legs keep the salt so that
they hit their own blocks.
"""

import hashlib
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from rollcast.generator.completion import Completion
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import EngineRequest, Finish
from rollcast.rollouts.records import Purpose, Rollout
from rollcast.wire.version import PolicyVersion

_private_salts = itertools.count()


@dataclass(frozen=True, slots=True)
class TurnEnds:
    """Ends of a turn besides the model's own end of text and its budget,
    and its reader meanwhile.
    """

    token_ids: tuple[int, ...] = ()
    """Tokens; the one that ended it is its last."""
    texts: tuple[str, ...] = ()
    """Texts; the token that completes one is its last. A text over the border of two legs is not
    seen."""
    on_tokens: Callable[[list[int], list[int]], None] | None = None
    """Called with all tokens before the turn and its own so far. None = they are wanted at its end
    only."""


NO_OTHER_ENDS = TurnEnds()


class SequenceSampler:
    """Samples the legs of one completion, and keeps its books."""

    def __init__(self, engine: Engine, prompt_token_ids: list[int], completion: Completion) -> None:
        self._engine = engine
        self.prompt_token_ids = prompt_token_ids
        self._request: EngineRequest | None = None
        self._salt: str | None = None
        self._requests: list[tuple[EngineRequest, int]] = []
        """Finished requests, each with the number of the completion's tokens before it."""
        self._routed_from = 0
        self._aborted = False
        self.stop_text: str | None = None
        """The text that ended the last turn. None = a token that ends turns, or a budget."""
        self.completion = completion
        self.num_kept_tokens = 0
        """Tokens whose KV later legs found in the prefix cache."""
        self.num_rebuilt_tokens = 0
        """Tokens whose KV later legs computed again."""
        self.num_prefilled_tokens = 0
        """Tokens of the prompt whose KV the first leg computed."""

    @property
    def num_tokens(self) -> int:
        """Tokens of the next request, prompt included."""
        return len(self.prompt_token_ids) + self.completion.num_input_tokens

    @property
    def versions(self) -> set[PolicyVersion]:
        """Versions that have or may have sampled a token."""
        sampling_versions = self.completion.versions
        if self._request is not None:
            sampling_versions |= self._engine.versions_since(self._request)
        return sampling_versions

    def abort(self) -> None:
        """Make the running `turn` return soon, with the tokens so far.

        There is no other turn after it.
        """
        self._aborted = True
        if self._request is not None:
            self._engine.abort(self._request)

    async def turn(self, ends: TurnEnds = NO_OTHER_ENDS) -> Finish:
        """Sample until the model or the budget ends its turn. "abort" = `abort` was called.

        Raises the engine's errors.
        """
        while not self._aborted:
            leg = self.completion.next_leg()
            if leg is None:
                return "length"
            if leg.force_phrase:
                version = self._engine.newest_version
                assert version is not None, "nothing is claimed before the first version"
                self.completion.force_phrase(version)
            if await self._sample(leg.max_tokens, ends) == "stop":
                return "stop"
        return "abort"

    async def _sample(self, max_tokens: int, ends: TurnEnds) -> Finish:
        """Sample one leg.

        "abort" = nothing may have been sampled, and the leg is to be asked for again.
        """
        task = self.completion.task
        position = self.completion.num_input_tokens
        token_ids = self.prompt_token_ids + self.completion.token_ids
        # KV of the last token is computed with the next one.
        num_computed = len(token_ids) - 1
        token_ids += self.completion.given_token_ids
        if self._salt is None:
            # A later leg with this salt hits KV entries from here on, except in a block that it
            # computes again. Experts that tie may be chosen differently there, and its tokens see
            # that choice.
            self._routed_from = self.completion.num_routed
        request = EngineRequest(
            token_ids=token_ids,
            max_tokens=max_tokens,
            sampling=task.sampling,
            seed=self._seed(position) if task.sampling.seed else None,
            salt=self._choose_salt,
            routed_from=self._routed_from,
            stop_token_ids=ends.token_ids,
            stop=ends.texts,
            on_tokens=ends.on_tokens and self._leg_reader(ends.on_tokens, token_ids),
        )
        self._request = request
        try:
            sampled = await self._engine.sample(request)
        finally:
            self._request = None
        if sampled.request_id:
            self._requests.append((request, position))
        if sampled.finish == "abort":
            # The next request may begin with another version, whose KV must not be shared with this
            # one's.
            self._salt = None
        self.stop_text = sampled.stop_text
        self.completion.append(sampled.token_ids, sampled.logprobs, sampled.spans)
        if (
            sampled.token_ids
            and sampled.routed_experts is not None
            and task.purpose is Purpose.TRAIN
        ):
            self.completion.record_experts(request.routed_from, sampled.routed_experts)
        num_kept = min(sampled.num_cached_tokens, num_computed)
        if not position:
            self.num_prefilled_tokens += num_computed - num_kept
        # KV that the prefix cache has lost was computed again, with the present weights.
        elif sampled.token_ids:
            self.completion.mark_rebuild(position, sampled.num_cached_tokens)
            self.num_kept_tokens += num_kept
            self.num_rebuilt_tokens += num_computed - num_kept
        return sampled.finish

    def rollout(self) -> Rollout:
        """The record. Call it once, after `Engine.observe`, because it counts the preemptions."""
        for request, base in self._requests:
            for num_output_tokens, num_kept in request.rebuilds:
                self.completion.preemptions += 1
                self.completion.mark_rebuild(base + num_output_tokens, num_kept)
        self._requests = []
        return self.completion.rollout()

    def _leg_reader(
        self, on_tokens: Callable[[list[int], list[int]], None], token_ids: list[int]
    ) -> Callable[[list[int]], None]:
        """The reader of a leg after `token_ids`, which end with the turn's earlier legs."""
        start = len(self.prompt_token_ids) + self.completion.turn_start
        before_turn = token_ids[:start]
        earlier_legs = token_ids[start:]
        return lambda leg: on_tokens(before_turn, earlier_legs + leg)

    def _choose_salt(self, version: PolicyVersion) -> str:
        if self._salt is None:
            self._salt = f"{version}/{self.completion.task.sequence}"
            if self.completion.can_have_two_legs or self.completion.token_ids:
                self._salt += f"/{self.completion.index}/{next(_private_salts)}"
        return self._salt

    def _seed(self, position: int) -> int:
        """A different seed for each request of a seeded task."""
        task = self.completion.task
        text = f"{task.sampling.seed}/{task.sequence}/{self.completion.index}/{position}"
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        # vLLM takes signed integers of 64 bits.
        return int.from_bytes(digest, "little") >> 1
