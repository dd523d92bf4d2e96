"""Counts and KV rebuilds of the engine's steps, read
from the scheduler's output inside the worker.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from rollcast.generator.vllm.kv_blocks import KvBlocks


class KvRebuild(NamedTuple):
    """A preempted request runs again: before its output token `num_output_tokens`, KV from
    `num_kept` on is rebuilt, by the request or, since its preemption, by another rollout of the
    same prompt."""

    request_id: str
    num_output_tokens: int
    num_kept: int


@dataclass(slots=True)
class EngineCounts:
    """Counts since the engine's start.

    Read from the workers, so that a hung engine behind a live front end is seen.
    """

    steps: int
    preemptions: int
    decode_tokens: float
    """Sum over the steps in which requests continued decoding: tokens that each of these got, on
    average. Without drafts the number of these steps."""
    decode_seconds: float
    """Sum over these steps, each from the end of the step before to its own end."""
    sampled_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    """Drafted tokens that the target accepted."""
    inflight_tokens: int
    """Tokens sampled so far by the unfinished requests."""

    @classmethod
    def zero(cls) -> "EngineCounts":
        """The counts of an engine that has made no step."""
        return cls(*(0 for _ in fields(cls)))


class StepObserver:
    """Sees every scheduler output before the model runs it.

    waiting -> prefilling (one or more steps) -> decoding -> finished
                    ^------- preempted <---------'
    """

    def __init__(self, block_sizes: Sequence[int], recurrent: Collection[int] = ()) -> None:
        """`block_sizes` and `recurrent`: see KvBlocks."""
        self.counts = EngineCounts.zero()
        """All except `inflight_tokens`, which `take_counts` adds."""
        self.last_step_at = 0.0
        """When the model last ran, in monotonic seconds."""
        self._continuing: set[str] = set()
        """Requests that continue decoding in the step last observed."""
        self._num_prompt_tokens: dict[str, int] = {}
        self._prefilling: dict[str, int] = {}
        self._decoding: set[str] = set()
        self._sampled: dict[str, int] = {}
        self._rebuilds: list[KvRebuild] = []
        self._blocks = KvBlocks(block_sizes, recurrent)

    def observe(self, scheduled: Any) -> None:
        """Take in one vLLM SchedulerOutput."""
        self.counts.steps += scheduled.total_num_scheduled_tokens > 0
        for request_id in scheduled.finished_req_ids:
            self._num_prompt_tokens.pop(request_id, None)
            self._prefilling.pop(request_id, None)
            self._decoding.discard(request_id)
            self._sampled.pop(request_id, None)
            self._blocks.end(request_id)
        for request_id in scheduled.preempted_req_ids or ():
            self.counts.preemptions += 1
            self._blocks.preempt(request_id)
            self._prefilling.pop(request_id, None)
            self._decoding.discard(request_id)
        # Before requests of this step begin to decode: a step counts if a request goes on decoding
        # in it.
        self._continuing = self._decoding & scheduled.num_scheduled_tokens.keys()
        self._take_in_requests(scheduled)
        for request_id in self._decoding & scheduled.num_scheduled_tokens.keys():
            self._sampled[request_id] = self._sampled.get(request_id, 0) + 1
            self.counts.sampled_tokens += 1
        self.counts.drafted_tokens += sum(map(len, scheduled.scheduled_spec_decode_tokens.values()))

    def take_in_sampled(self, num_tokens: Mapping[str, int]) -> None:
        """Take in how many tokens of each request the step last observed has sampled: with drafts
        more than the one of `observe`.

        The last step of a request may have sampled tokens after its end, which vLLM drops.
        """
        # A request that begins may have drafts too: vLLM fills its step up with placeholders.
        for request_id in self._decoding & num_tokens.keys():
            accepted = num_tokens[request_id] - 1
            self._sampled[request_id] += accepted
            self.counts.sampled_tokens += accepted
            self.counts.accepted_tokens += accepted
            if request_id in self._continuing:
                self.counts.decode_tokens += accepted / len(self._continuing)

    def _take_in_requests(self, scheduled: Any) -> None:
        """Take in the requests that begin, run again, or go on."""
        beginning = []
        for new in scheduled.scheduled_new_reqs:
            # vLLM's second model runner gets resumed requests as new ones
            is_resumed = new.req_id in self._num_prompt_tokens
            self._num_prompt_tokens[new.req_id] = len(new.prompt_token_ids)
            num_tokens = len(new.prefill_token_ids or new.prompt_token_ids)
            beginning.append(
                (new.num_computed_tokens, new.req_id, new.block_ids, num_tokens, is_resumed)
            )
        cached = scheduled.scheduled_cached_reqs
        for request_id, computed, outputs, blocks in zip(
            cached.req_ids,
            cached.num_computed_tokens,
            cached.num_output_tokens,
            cached.new_block_ids,
            strict=True,
        ):
            if request_id in cached.resumed_req_ids:
                num_tokens = self._num_prompt_tokens[request_id] + outputs
                beginning.append((computed, request_id, blocks, num_tokens, True))
                continue
            if blocks is not None:
                self._blocks.grow(request_id, blocks)
            if request_id in self._prefilling:
                self._advance(scheduled, request_id, computed, self._prefilling[request_id])
        # A request may get a block that an earlier one of the same step fills (`KvBlocks.begin`).
        beginning.sort(key=lambda request: request[0])
        for computed, request_id, blocks, num_tokens, is_resumed in beginning:
            num_kept = self._blocks.begin(request_id, blocks, computed)
            if is_resumed:
                num_outputs = num_tokens - self._num_prompt_tokens[request_id]
                self._rebuilds.append(KvRebuild(request_id, num_outputs, num_kept))
            self._advance(scheduled, request_id, computed, num_tokens)

    def weights_changed(self) -> None:
        """New weights were loaded, between two steps."""
        self._blocks.weights_changed(
            # KV of the last sampled token is not computed yet.
            {
                name: self._num_prompt_tokens[name] + self._sampled[name] - 1
                for name in self._decoding
            }
        )

    def step_ended(self, now_seconds: float) -> None:
        """The step last observed has run; `now_seconds` in monotonic seconds."""
        if self._continuing:
            self.counts.decode_tokens += 1
            self.counts.decode_seconds += now_seconds - self.last_step_at
        self.last_step_at = now_seconds

    def take_counts(self) -> EngineCounts:
        """The counts at this moment."""
        return replace(self.counts, inflight_tokens=sum(self._sampled.values()))

    def decoding(self) -> list[str]:
        """Requests whose KV is complete: they sampled a token in their last step."""
        return sorted(self._decoding)

    def take_rebuilds(self) -> list[KvRebuild]:
        """Rebuilds since the last call."""
        rebuilds = self._rebuilds
        self._rebuilds = []
        return rebuilds

    def _advance(self, scheduled: Any, request_id: str, computed: int, num_tokens: int) -> None:
        if computed + scheduled.num_scheduled_tokens[request_id] < num_tokens:
            self._prefilling[request_id] = num_tokens
        else:
            self._prefilling.pop(request_id, None)
            self._decoding.add(request_id)
