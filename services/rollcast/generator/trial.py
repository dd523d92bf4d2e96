"""`python -m rollcast.generator.trial --config FILE --prompts N --out FILE`: a few completions, without a trainer.

The engine samples from the weights in the model's folder, which are the trainer's first version. Thinking is not cut.
"""

import argparse
import asyncio
import sys
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, load_run_config
from rollcast.config.tasks import Tasks
from rollcast.generator.grading import Graded, GradingThreads
from rollcast.generator.sampling import RolloutSampler
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_process import EngineFork
from rollcast.generator.vllm.engine_start import set_environment
from rollcast.rollouts.records import LengthBudget, PromptTask, Purpose, Sampling, StopReason
from rollcast.runfolder.records import TrialRecord, TriedCompletion
from rollcast.runfolder.writing import replace_json
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import TokenizedPrompt, load_tokenizer, tokenize_prompts
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import configure_logging
from rollcast.telemetry.process_end import end

NAME = "trial"


async def try_out(config: RunConfig, num_prompts: int, fork: EngineFork) -> TrialRecord:
    """Sample and grade `recipe.rollouts_per_prompt` completions of the first training prompts. Raises UserError."""
    prompts = _prompts(config.model, config.tasks, config.recipe.max_prompt_tokens, num_prompts)
    began = time.monotonic()
    engine = await Engine.start(config, NAME, fork, own_weights=True)
    started = time.monotonic()
    grader = GradingThreads(engine.decode, config.tasks, Exporter(config.run))
    try:
        tasks = [_task(config.recipe, number, prompt) for number, prompt in enumerate(prompts)]
        samplers = [(task, RolloutSampler(engine, task, index)) for task in tasks for index in range(task.num_rollouts)]
        await asyncio.gather(*(sampler.run() for _, sampler in samplers))
        sampled = time.monotonic()
        graded = await asyncio.gather(
            *(grader.grade(task, sampler.completion.text_token_ids) for task, sampler in samplers)
        )
        tried = [
            _trial_completion(engine, prompts[task.sequence], sampler, verdict)
            for (task, sampler), verdict in zip(samplers, graded, strict=True)
        ]
        seconds = sum(grading.seconds for grading in graded)
        return TrialRecord(started - began, sampled - started, seconds, tuple(tried))
    finally:
        await grader.close()
        engine.shutdown()


def _prompts(model: Model, tasks: Tasks, limit: int, num_prompts: int) -> list[TokenizedPrompt]:
    tokenizer = load_tokenizer(model)
    single = [prompt for prompt in load(tasks).train if not prompt.environment]
    if not single:
        raise UserError(
            "tasks.environments: every prompt is answered in an environment, and only single answers can be tried; "
            "start the run with a small budget.steps"
        )
    few = single[: 4 * num_prompts]  # some may be too long
    short_prompts, _ = tokenize_prompts(tokenizer, few, limit, tasks.prompt_format)
    if not short_prompts:
        raise UserError(f"recipe.max_prompt_tokens = {limit}: each of the first {len(few)} prompts is longer; raise it")
    return short_prompts[:num_prompts]


def _task(recipe: Recipe, number: int, prompt: TokenizedPrompt) -> PromptTask:
    return PromptTask(
        sequence=number,
        incarnation=0,
        purpose=Purpose.TRAIN,
        dataset=prompt.prompt.dataset,
        prompt_id=prompt.prompt.id,
        prompt_token_ids=np.asarray(prompt.token_ids, dtype=np.int32),
        num_rollouts=recipe.rollouts_per_prompt,
        sampling=Sampling(temperature=recipe.temperature),
        length=LengthBudget(recipe.max_completion_tokens),
        verifier=prompt.prompt.verifier,
        reference=prompt.prompt.reference,
    )


def _trial_completion(
    engine: Engine, prompt: TokenizedPrompt, sampler: RolloutSampler, graded: Graded
) -> TriedCompletion:
    completion = sampler.completion
    return TriedCompletion(
        prompt=prompt.prompt.text,
        text=engine.decode(completion.text_token_ids),
        num_prompt_tokens=len(prompt.token_ids),
        num_tokens=len(completion.token_ids),
        truncated=completion.stop_reason is StopReason.LENGTH,
        reward=graded.reward,
        status=str(graded.status),
        failure=graded.failure,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m rollcast.generator.trial", description="Samples a few prompts.")
    parser.add_argument("--config", type=Path, required=True, help="run file, resolved")
    parser.add_argument("--prompts", type=int, default=4, help="how many")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the record")
    arguments = parser.parse_args()
    try:
        config = load_run_config(arguments.config)
        configure_logging(NAME)
        set_environment(config.generator)
        with EngineFork() as fork:
            trial_record = asyncio.run(try_out(config, arguments.prompts, fork))
        replace_json(arguments.out, asdict(trial_record))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    end(main())
