"""The observer reads from scheduler outputs which requests decode and where KV was rebuilt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rollcast.generator.vllm.kv_blocks import KvBlocks
from rollcast.generator.vllm.steps import KvRebuild, StepObserver
from rollcast.generator.weights import DecodeRate

BLOCK = 4


def scheduled(
    tokens: dict[str, int],
    *,
    new: dict[str, tuple[int, int]] | None = None,
    cached: dict[str, tuple[int, int]] | None = None,
    resumed: set[str] = frozenset(),  # type: ignore[assignment]
    preempted: set[str] = frozenset(),  # type: ignore[assignment]
    finished: set[str] = frozenset(),  # type: ignore[assignment]
    blocks: dict[str, list[int]] | None = None,
    drafts: dict[str, list[int]] | None = None,
) -> Any:
    """new: id -> (prompt tokens, computed); cached: id -> (computed, output tokens); blocks: those
    that a request gets, or all it has where it runs again."""
    blocks = blocks or {}
    return SimpleNamespace(
        total_num_scheduled_tokens=sum(tokens.values()),
        num_scheduled_tokens=tokens,
        scheduled_spec_decode_tokens=drafts or {},
        finished_req_ids=finished,
        preempted_req_ids=preempted,
        scheduled_new_reqs=[
            SimpleNamespace(
                req_id=name,
                prompt_token_ids=[7] * prompt,
                prefill_token_ids=None,
                num_computed_tokens=computed,
                block_ids=(blocks.get(name, []),),
            )
            for name, (prompt, computed) in (new or {}).items()
        ],
        scheduled_cached_reqs=SimpleNamespace(
            req_ids=list(cached or {}),
            resumed_req_ids=resumed,
            num_computed_tokens=[computed for computed, _ in (cached or {}).values()],
            num_output_tokens=[outputs for _, outputs in (cached or {}).values()],
            new_block_ids=[
                (blocks.get(name, []),) if name in resumed | blocks.keys() else None
                for name in cached or {}
            ],
        ),
    )


def test_a_prompt_in_one_step_decodes_from_then_on() -> None:
    observer = StepObserver([BLOCK])
    observer.observe(scheduled({"a": 10}, new={"a": (10, 0)}))
    assert observer.decoding() == ["a"]
    observer.observe(scheduled({"a": 1}, cached={"a": (10, 1)}))
    assert observer.decoding() == ["a"]
    assert observer.counts.steps == 2
    observer.observe(scheduled({}, finished={"a"}))
    assert observer.decoding() == []
    assert observer.counts.steps == 2


def test_a_prompt_in_chunks_decodes_only_after_the_last() -> None:
    observer = StepObserver([BLOCK])
    observer.observe(scheduled({"a": 32}, new={"a": (100, 32)}))
    assert observer.decoding() == []
    observer.observe(scheduled({"a": 32}, cached={"a": (64, 0)}))
    assert observer.decoding() == []
    observer.observe(scheduled({"a": 4}, cached={"a": (96, 0)}))
    assert observer.decoding() == ["a"]
    assert observer.take_rebuilds() == []


def test_sampled_tokens_are_counted_and_those_of_unfinished_requests_kept_apart() -> None:
    observer = StepObserver([BLOCK])
    observer.observe(scheduled({"a": 10, "b": 32}, new={"a": (10, 0), "b": (40, 0)}))
    assert (observer.counts.sampled_tokens, observer.take_counts().inflight_tokens) == (1, 1), (
        "b is in its prompt"
    )
    observer.observe(scheduled({"a": 1, "b": 8}, cached={"a": (10, 1), "b": (32, 0)}))
    observer.observe(scheduled({"a": 1, "b": 1}, cached={"a": (11, 2), "b": (40, 1)}))
    assert (observer.counts.sampled_tokens, observer.take_counts().inflight_tokens) == (5, 5)
    observer.observe(scheduled({"b": 1}, cached={"b": (41, 2)}, finished={"a"}))
    assert (observer.counts.sampled_tokens, observer.take_counts().inflight_tokens) == (6, 3)
    observer.observe(scheduled({}, preempted={"b"}))
    assert observer.take_counts().inflight_tokens == 3, (
        "what it sampled is kept, only its KV entries are not"
    )
    observer.observe(scheduled({"b": 43}, cached={"b": (0, 3)}, resumed={"b"}))
    assert (observer.counts.sampled_tokens, observer.take_counts().inflight_tokens) == (7, 4)
    observer.observe(scheduled({}, finished={"b"}))
    assert (observer.counts.sampled_tokens, observer.take_counts().inflight_tokens) == (7, 0)


def test_accepted_drafts_are_counted_and_are_tokens_of_their_request() -> None:
    observer = StepObserver([BLOCK])
    observer.observe(scheduled({"a": 10, "b": 10}, new={"a": (10, 0), "b": (10, 0)}))
    observer.take_in_sampled({"a": 1, "b": 1})
    observer.step_ended(1.0)
    observer.observe(
        scheduled(
            {"a": 4, "b": 1, "c": 6},
            new={"c": (9, 3)},
            cached={"a": (10, 1), "b": (10, 1)},
            drafts={"a": [5, 6, 7], "c": [-1, -1, -1]},
        )
    )
    observer.take_in_sampled({"a": 3, "b": 1, "c": 2})
    observer.step_ended(2.0)
    counts = observer.take_counts()
    assert (counts.drafted_tokens, counts.accepted_tokens) == (6, 3)
    assert (counts.sampled_tokens, counts.inflight_tokens) == (8, 8)
    # a got three and b one; c only began.
    assert (counts.decode_tokens, counts.decode_seconds) == (2.0, 1.0)


def test_a_preempted_request_is_counted_and_its_rebuild_told_once() -> None:
    observer = StepObserver([BLOCK])
    observer.observe(scheduled({"a": 10, "b": 10}, new={"a": (10, 0), "b": (10, 0)}))
    observer.observe(scheduled({"a": 1}, cached={"a": (10, 1)}, preempted={"b"}))
    assert observer.decoding() == ["a"]
    assert observer.counts.preemptions == 1
    # 10 prompt and 5 output tokens, of which the first 8 are found in the cache; two chunks.
    observer.observe(scheduled({"a": 1, "b": 4}, cached={"a": (11, 2), "b": (8, 5)}, resumed={"b"}))
    assert observer.decoding() == ["a"]
    observer.observe(scheduled({"a": 1, "b": 3}, cached={"a": (12, 3), "b": (12, 5)}))
    assert observer.decoding() == ["a", "b"]
    assert observer.take_rebuilds() == [KvRebuild("b", 5, 8)]
    assert observer.take_rebuilds() == []


def kept_of(*steps: Any) -> list[int]:
    """Of each rebuild, in order: the tokens that were kept.

    None in place of a step: the weights change.
    """
    observer = StepObserver([BLOCK])
    for step in steps:
        if step is None:
            observer.weights_changed()
        else:
            observer.observe(step)
    return [rebuild.num_kept for rebuild in observer.take_rebuilds()]


def again(name: str, computed: int, blocks: list[int], outputs: int = 4, prompt: int = 10) -> Any:
    """It runs again, in one step; `blocks`: all that it has."""
    tokens = {name: prompt + outputs - computed}
    return scheduled(
        tokens, cached={name: (computed, outputs)}, resumed={name}, blocks={name: blocks}
    )


BEGUN = [
    scheduled(
        {"a": 10, "b": 2}, new={"a": (10, 0), "b": (10, 8)}, blocks={"a": [1, 2, 3], "b": [1, 2, 5]}
    ),
    scheduled({"a": 1, "b": 1}, cached={"a": (10, 1), "b": (10, 1)}),
    scheduled({"a": 1, "b": 1}, cached={"a": (11, 2), "b": (11, 2)}),
    scheduled({"a": 1, "b": 1}, cached={"a": (12, 3), "b": (12, 3)}, blocks={"a": [4], "b": [6]}),
]
"""Rollouts a and b share the prompt's blocks 1 and 2; 3 and 5 are full, 4 and 6 have one token."""
GONE = scheduled({}, preempted={"a", "b"})


@pytest.mark.parametrize(
    ("steps", "kept"),
    [
        pytest.param([None, GONE, again("b", 12, [1, 2, 5, 7])], [12], id="its own"),
        pytest.param(
            [None, GONE, again("a", 0, [8, 9, 3, 4]), again("b", 8, [8, 9, 5, 6])],
            [0, 0],
            id="another's, newer weights",
        ),
        pytest.param(
            [None, GONE, again("a", 4, [1, 2, 3, 4]), again("b", 8, [1, 2, 5, 6])],
            [4, 4],
            id="filled again in its place",
        ),
        pytest.param(
            [GONE, again("a", 0, [8, 9, 3, 4]), again("b", 8, [8, 9, 5, 6])],
            [0, 8],
            id="another's, the same weights",
        ),
        pytest.param(
            [
                None,
                GONE,
                again("a", 12, [1, 2, 3, 4]),
                None,
                GONE,
                again("a", 12, [1, 2, 3, 4], outputs=5),
            ],
            [12, 12],
            id="twice",
        ),
    ],
)
def test_of_a_rebuild_the_blocks_are_kept_whose_kv_it_has_seen(
    steps: list[Any], kept: list[int]
) -> None:
    assert kept_of(*BEGUN, *steps) == kept


def test_the_same_prompt_computed_twice_with_the_same_weights_is_as_good() -> None:
    """Its end is a block's end: the last block is computed by each, and the cache has both."""
    begun = scheduled(
        {"a": 8, "b": 4}, new={"a": (8, 0), "b": (8, 4)}, blocks={"a": [1, 2], "b": [1, 3]}
    )
    grown = scheduled(
        {"a": 1, "b": 1}, cached={"a": (8, 1), "b": (8, 1)}, blocks={"a": [4], "b": [5]}
    )
    back = again("b", 8, [1, 2, 5], outputs=2, prompt=8)
    assert kept_of(begun, grown, None, GONE, back) == [8]
    assert kept_of(begun, None, grown, GONE, back) == [8], (
        "the block was full when the weights changed"
    )


def test_a_block_that_was_computed_with_several_weights_is_nobody_elses() -> None:
    begun = scheduled(
        {"a": 6, "b": 2}, new={"a": (6, 0), "b": (6, 4)}, blocks={"a": [1, 2], "b": [1, 3]}
    )
    steps = [
        scheduled({"a": 1, "b": 1}, cached={"a": (6 + i, 1 + i), "b": (6 + i, 1 + i)})
        for i in range(2)
    ]
    grown = scheduled(
        {"a": 1, "b": 1}, cached={"a": (8, 3), "b": (8, 3)}, blocks={"a": [4], "b": [5]}
    )
    steps = [begun, steps[0], None, steps[1], grown, GONE]
    assert kept_of(*steps, again("b", 8, [1, 2, 5], outputs=4, prompt=6)) == [4], (
        "a's, of the same tokens"
    )
    assert kept_of(*steps, again("b", 8, [1, 3, 5], outputs=4, prompt=6)) == [8], "its own"


def test_what_is_found_may_be_filled_in_the_same_step() -> None:
    """vLLM counts a block as cached from the moment that it is handed out: by one that runs, or
    that begins too.
    """
    first = scheduled({"a": 4}, new={"a": (9, 0)}, blocks={"a": [1]})
    second = scheduled(
        {"a": 4, "b": 1}, new={"b": (9, 8)}, cached={"a": (4, 0)}, blocks={"a": [2], "b": [1, 2, 3]}
    )
    back = again("b", 8, [1, 2, 3], outputs=1, prompt=9)
    gone = scheduled({}, preempted={"b"})
    assert kept_of(first, second, None, gone, back) == [8]
    both = scheduled(
        {"a": 9, "b": 1}, new={"b": (9, 8), "a": (9, 0)}, blocks={"a": [1, 2, 4], "b": [1, 2, 3]}
    )
    assert kept_of(both, None, gone, back) == [8]


@pytest.mark.parametrize("outputs", [0, 3])
def test_the_second_model_runner_is_told_of_a_request_that_runs_again_as_of_a_new_one(
    outputs: int,
) -> None:
    """Also of one that was preempted within its prompt, a second leg say, which had found more of
    it before.
    """
    begun = scheduled({"a": 2}, new={"a": (12, 8)}, blocks={"a": [1, 2, 3]})
    more = [scheduled({"a": 1}, cached={"a": (10 + i, 0)}) for i in range(2 + outputs)]
    gone = scheduled({}, preempted={"a"})
    back = scheduled({"a": 8 + outputs}, new={"a": (12, 4)}, blocks={"a": [1, 5, 6]})
    back.scheduled_new_reqs[0].prefill_token_ids = [7] * (12 + outputs)
    observer = StepObserver([BLOCK])
    for step in (begun, *(more if outputs else []), gone, back):
        observer.observe(step)
    assert observer.take_rebuilds() == [KvRebuild("a", outputs, 4)]
    assert observer.decoding() == ["a"]


def test_a_group_of_layers_that_looks_back_a_little_has_no_blocks_before() -> None:
    blocks = KvBlocks([4, 4])
    assert blocks.begin("a", ([1, 2, 3], [4, 5, 6]), 0) == 0
    blocks.weights_changed({"a": 12})
    blocks.preempt("a")
    assert blocks.begin("b", ([8], [9]), 0) == 0, "newer weights"
    assert blocks.begin("a", ([1, 2, 7], [0, 5, 10]), 8) == 8
    blocks.preempt("a")
    assert blocks.begin("a", ([1, 2, 7], [0, 9, 10]), 8) == 4, "the worse of both groups"


def test_a_state_stands_for_all_tokens_before_it() -> None:
    blocks = KvBlocks([4, 4], recurrent=[1])
    blocks.begin("a", ([1, 2, 3], [4, 5, 6]), 0)
    blocks.weights_changed({"a": 12})
    blocks.preempt("a")
    blocks.begin("b", ([7, 8, 9], [10, 11, 12]), 0)
    assert blocks.begin("a", ([1, 2, 13], [0, 5, 14]), 8) == 8, (
        "its own state, and no block of its first tokens"
    )
    blocks.preempt("a")
    assert blocks.begin("a", ([1, 2, 13], [0, 11, 14]), 8) == 0, (
        "newer weights computed it from the first token on"
    )


def test_a_state_goes_on_from_the_block_before_a_gap() -> None:
    """vLLM keeps a prompt's state where a step ends: block 1 of three is null."""
    blocks = KvBlocks([4], recurrent=[0])
    blocks.begin("a", ([1, 0, 2],), 0)
    blocks.weights_changed({"a": 12})
    blocks.preempt("a")
    blocks.begin("b", ([1, 0, 3],), 4)
    assert blocks.begin("a", ([0, 0, 3],), 12) == 4, (
        "the other one went on from the first state with newer weights"
    )


def test_a_block_that_was_got_for_refused_drafts_is_filled_by_the_next_weights() -> None:
    """Tokens 8 to 11 of a were drafts when the weights changed; b fills such a block itself."""
    blocks = KvBlocks([4])
    blocks.begin("a", ([1, 2, 3],), 0)
    blocks.weights_changed({"a": 8})
    blocks.preempt("a")
    blocks.begin("b", ([1, 2, 4],), 8)
    assert blocks.begin("a", ([1, 2, 4],), 12) == 12


def test_the_decode_rate_knows_nothing_of_idle_time_and_prefill() -> None:
    """20 tokens a second while something decodes; minutes of idle time
    and a long prefill between.
    """
    observer, rate, now = StepObserver([BLOCK]), DecodeRate(), 1000.0

    def step(seconds: float, output: Any) -> float:
        nonlocal now
        before = (observer.counts.decode_tokens, observer.counts.decode_seconds)
        observer.observe(output)
        now += seconds
        observer.step_ended(now)
        return rate.update(
            observer.counts.decode_tokens - before[0], observer.counts.decode_seconds - before[1]
        )

    assert step(30.0, scheduled({"a": 10}, new={"a": (10, 0)})) == 0.0, "unknown"
    for outputs in range(1, 21):
        known = step(0.05, scheduled({"a": 1}, cached={"a": (9 + outputs, outputs)}))
    assert known == pytest.approx(20.0)
    now += 300.0
    assert step(9.0, scheduled({"b": 90}, new={"b": (90, 0)}, finished={"a"})) == pytest.approx(
        20.0
    )
    assert step(0.05, scheduled({"b": 1}, cached={"b": (90, 1)})) == pytest.approx(20.0)


def test_the_decode_rate_follows_a_change_and_smooths_a_hiccup() -> None:
    rate = DecodeRate()
    readings = []
    for per_second, duration in ((20.0, 30.0), (2.0, 1.0), (20.0, 29.0), (5.0, 40.0)):
        for _ in range(int(duration)):
            readings.append(rate.update(int(per_second), 1.0))
    assert readings[29] == pytest.approx(20.0)
    assert min(readings[:59]) > 17.0
    assert readings[-1] == pytest.approx(5.0, rel=0.1)
