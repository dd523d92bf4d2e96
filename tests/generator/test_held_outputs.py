"""Outputs that the engine's process holds reach the front end as vLLM's own messages do."""

from __future__ import annotations

import asyncio
import inspect
import random
from typing import Any

import numpy as np
import pytest

from rollcast.generator.sampling import RolloutSampler
from rollcast.generator.vllm.held_outputs import HeldOutputs, hold_outputs
from rollcast.rollouts.records import LengthBudget
from tests.generator.conftest import Versions, make_task, random_prompt

pytestmark = pytest.mark.engine

READ_AT_END, READ_MEANWHILE, WITH_STOP_TEXT = range(3)
PROMPT_TOKENS = 5


def random_requests(source: random.Random, *, has_logprobs: bool) -> dict[str, Any]:
    """vLLM's requests, by number."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine import EngineCoreRequest

    def request(name: str, kind: int) -> Any:
        parameters = SamplingParams(
            logprobs=0 if has_logprobs else None,
            flat_logprobs=True,
            stop=["x"] if kind == WITH_STOP_TEXT else [],
            detokenize=kind == WITH_STOP_TEXT,
            output_kind=RequestOutputKind.CUMULATIVE
            if kind == READ_MEANWHILE
            else RequestOutputKind.FINAL_ONLY,
        )
        prompt = [1] * PROMPT_TOKENS
        return EngineCoreRequest(
            name, prompt, None, parameters, None, 0.0, None, None, None, external_req_id=name
        )

    return {str(name): request(str(name), source.randrange(3)) for name in range(12)}


def random_steps(
    source: random.Random, names: list[str], *, has_logprobs: bool, max_tokens: int, experts: bool
) -> list[Any]:
    """Messages of an engine's steps, of several versions; each step gives a token, or up to
    `max_tokens`, to most of the unfinished requests.
    """
    from vllm.v1.engine import EngineCoreOutput, EngineCoreOutputs, FinishReason
    from vllm.v1.metrics.stats import PrefillStats
    from vllm.v1.outputs import LogprobsLists

    numbers = np.random.default_rng(source.randrange(1000))
    lengths = {name: source.randrange(1, 100) for name in names}
    made = dict.fromkeys(names, 0)
    steps = []
    version = 0
    while unfinished := [name for name in names if made[name] < lengths[name]]:
        version += source.random() < 0.05
        outputs = []
        for name in unfinished:
            if source.random() < 0.2:
                continue
            tokens = numbers.integers(0, 50, source.randint(1, max_tokens))
            logprobs = LogprobsLists(
                tokens[:, None].astype(np.int32),
                numbers.standard_normal((len(tokens), 1), dtype=np.float32),
                numbers.integers(0, 9, len(tokens)),
            )
            rows = len(tokens) + (0 if made[name] else PROMPT_TOKENS - 1)
            outputs.append(
                EngineCoreOutput(
                    name,
                    tokens.tolist(),
                    new_logprobs=logprobs if has_logprobs else None,
                    prefill_stats=None if made[name] else PrefillStats(5, 3, 2),
                    routed_experts=numbers.integers(0, 8, (rows, 3, 2), dtype=np.uint8)
                    if experts
                    else None,
                )
            )
            made[name] += len(tokens)
            if made[name] >= lengths[name]:
                outputs[-1].finish_reason = source.choice([FinishReason.STOP, FinishReason.LENGTH])
        steps.append(EngineCoreOutputs(outputs=outputs, weight_version=str(version)))
    return steps


class FrontEnd:
    """vLLM's decoder and output processor, and all that comes out of them."""

    def __init__(self, requests: dict[str, Any]) -> None:
        from vllm.v1.engine import EngineCoreOutputs
        from vllm.v1.engine.output_processor import OutputProcessor
        from vllm.v1.serial_utils import MsgpackDecoder, MsgpackEncoder

        self._encoder = MsgpackEncoder()
        self._decoder = MsgpackDecoder(EngineCoreOutputs)
        self._processor = OutputProcessor(None, log_stats=False)
        for request in requests.values():
            self._processor.add_request(request, None)
        self.results: list[Any] = []
        self.num_outputs = 0

    def copy(self, message: Any) -> Any:
        return self._decoder.decode(self._encoder.encode(message))

    def receive(self, message: Any) -> None:
        self.num_outputs += len(message.outputs)
        processed = self._processor.process_outputs(
            self.copy(message).outputs, weight_version=message.weight_version
        )
        for result in processed.request_outputs:
            (completion,) = result.outputs
            experts = completion.routed_experts
            self.results.append(
                (
                    (result.request_id, result.finished, result.num_cached_tokens),
                    list(completion.token_ids),
                    completion.logprobs
                    and (
                        list(completion.logprobs.token_ids),
                        list(completion.logprobs.logprobs),
                        list(completion.logprobs.ranks),
                    ),
                    completion.cumulative_logprob,
                    (completion.finish_reason, completion.weight_versions),
                    None if experts is None else experts.tolist(),
                )
            )


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("max_tokens", [1, 4])
@pytest.mark.parametrize(("has_logprobs", "experts"), [(True, False), (True, True), (False, True)])
def test_results_are_those_of_every_steps_own_message(
    monkeypatch: pytest.MonkeyPatch, seed: int, max_tokens: int, has_logprobs: bool, experts: bool
) -> None:
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.engine.logprobs import LogprobsProcessor

    hold_outputs()
    source = random.Random(seed)
    requests = random_requests(source, has_logprobs=has_logprobs)
    steps = random_steps(
        source, list(requests), has_logprobs=has_logprobs, max_tokens=max_tokens, experts=experts
    )
    front_end = FrontEnd(requests)
    held = HeldOutputs()
    version = None
    for step in steps:
        # A version changes in a pause, which sends everything.
        if step.weight_version != version:
            front_end.receive(EngineCoreOutputs(outputs=held.take(), weight_version=version))
            version = step.weight_version
        due = held.hold(front_end.copy(step).outputs, requests)
        front_end.receive(EngineCoreOutputs(outputs=due, weight_version=version))
    vllm_own = inspect.unwrap(LogprobsProcessor._update_sample_logprobs)
    monkeypatch.setattr(LogprobsProcessor, "_update_sample_logprobs", vllm_own)
    reference = FrontEnd(requests)
    for step in steps:
        reference.receive(step)
    assert front_end.results == reference.results
    assert not held.take()
    assert front_end.num_outputs < reference.num_outputs


@pytest.mark.asyncio(loop_scope="session")
async def test_an_aborted_rollout_keeps_the_tokens_that_its_engine_has_sampled(
    versions: Versions,
) -> None:
    task = make_task(1, random_prompt(1), LengthBudget(max_tokens=380), rollouts=4)
    samplers = [RolloutSampler(versions.engine, task, index) for index in range(4)]
    running = [asyncio.create_task(sampler.run()) for sampler in samplers]
    num_sampled = versions.engine.counts.sampled_tokens
    for sampler in samplers:
        before = versions.engine.counts.sampled_tokens
        while versions.engine.counts.sampled_tokens < before + 37:
            await versions.engine.observe()
        sampler.stop()
    await asyncio.wait_for(asyncio.gather(*running), 60)
    await versions.engine.observe()
    num_sampled = versions.engine.counts.sampled_tokens - num_sampled
    rollouts = [sampler.rollout() for sampler in samplers]
    assert any(rollout.partial for rollout in rollouts)
    # The engine may sample a few more until it reads of the abort.
    num_kept = sum(rollout.num_tokens for rollout in rollouts)
    assert num_sampled - 3 * len(rollouts) <= num_kept <= num_sampled
