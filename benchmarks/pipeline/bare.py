"""Bare vLLM on the run's first tasks, without Rollcast: one JSON line with its tokens per second.

The engine has the arguments of the service's engine and the weights of the model folder; everything
runs on its core.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rollcast.config.run import RunConfig, load_run_config
from rollcast.generator.vllm.engine_start import engine_arguments, set_environment
from rollcast.rollouts.codec import decode_group
from rollcast.rollouts.records import RolloutGroup


async def answer(llm: Any, groups: list[RolloutGroup], slots: int) -> int:
    """Completion tokens for the prompts of `groups`, `slots` concurrent requests."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    free = asyncio.Semaphore(slots)

    async def one(group: RolloutGroup, index: int) -> int:
        parameters = SamplingParams(
            temperature=group.sampling.temperature,
            max_tokens=group.length.max_tokens,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        async with free:
            prompt = {"prompt_token_ids": group.prompt_token_ids.tolist()}
            (output,) = [
                o async for o in llm.generate(prompt, parameters, f"{group.sequence}-{index}")
            ]
            return len(output.outputs[0].token_ids)

    return sum(
        await asyncio.gather(
            *[one(group, index) for group in groups for index in range(len(group.rollouts))]
        )
    )


async def measure(config: RunConfig, groups: list[RolloutGroup]) -> dict[str, float]:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = engine_arguments(config, "bare") | {"load_format": "auto"}
    del arguments["worker_extension_cls"]
    llm = AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    try:
        batch = config.recipe.prompts_per_step
        await answer(llm, groups[:batch], config.generator.most_slots)
        started = time.monotonic()
        tokens = await answer(llm, groups[batch:], config.generator.most_slots)
        return {"tokens_per_second": tokens / (time.monotonic() - started)}
    finally:
        llm.shutdown(timeout=2.0)


def main(folder: Path) -> None:
    config = load_run_config(folder / "run.yaml")
    assert config.generator.cpu is not None
    os.sched_setaffinity(0, {config.generator.cpu})
    set_environment(config.generator)
    groups = [decode_group(path.read_bytes()) for path in sorted(folder.glob("*.group"))]
    print(json.dumps(asyncio.run(measure(config, groups))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
