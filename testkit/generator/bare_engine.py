"""vLLM alone, with the requests that a generator would make of tasks."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rollcast.rollouts.records import PromptTask


async def bare_tokens_per_second(llm: Any, tasks: list[PromptTask], slots: int) -> float:
    """`llm`: vLLM's AsyncLLM; `slots`: requests in parallel."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    free = asyncio.Semaphore(slots)
    started = time.perf_counter()

    async def answer(task: PromptTask, index: int) -> int:
        parameters = SamplingParams(
            temperature=task.sampling.temperature,
            max_tokens=task.length.max_tokens,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async with free:
            prompt = {"prompt_token_ids": task.prompt_token_ids.tolist()}
            name = f"bare-{started}-{task.sequence}-{index}"
            (output,) = [output async for output in llm.generate(prompt, parameters, name)]
            return len(output.outputs[0].token_ids)

    counts = await asyncio.gather(
        *[answer(task, index) for task in tasks for index in range(task.num_rollouts)]
    )
    return sum(counts) / (time.perf_counter() - started)
