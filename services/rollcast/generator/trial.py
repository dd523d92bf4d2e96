"""`python -m rollcast.generator.trial --config FILE --prompts N --out FILE`: a few completions and
episodes, without a trainer.

The engine samples from the weights in the model's folder, which are the trainer's first version.
Thinking is not cut.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rollcast.chat.check import check_chat_format
from rollcast.config.connections import Http
from rollcast.config.environments.settings import SessionEnvironment
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.recipe import Recipe
from rollcast.config.run import RunConfig, load_run_config
from rollcast.config.tasks import Tasks
from rollcast.connections.http import listen
from rollcast.environments.episode_tasks import make_episode_task
from rollcast.generator.base_sampler import Sampler
from rollcast.generator.endpoint.make import make_sessions, serve
from rollcast.generator.endpoint.single_calls import serve_single_calls
from rollcast.generator.episodes.make import episode_parts
from rollcast.generator.grading import Graded, GradingThreads
from rollcast.generator.samplers import Samplers
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_process import EngineFork
from rollcast.generator.vllm.engine_start import set_environment
from rollcast.rollouts.records import Episode, LengthBudget, PromptTask, Purpose, Rollout, Sampling
from rollcast.runfolder.trial_records import TrialRecord, TriedCompletion, TriedTurn
from rollcast.runfolder.writing import replace_json
from rollcast.tasks.prompts import load
from rollcast.tasks.tokens import TokenizedPrompt, load_tokenizer, tokenize_prompts
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import configure_logging
from rollcast.telemetry.process_end import end

NAME = "trial"


async def try_out(config: RunConfig, num_prompts: int, fork: EngineFork) -> TrialRecord:
    """Sample and grade `recipe.rollouts_per_prompt` completions of the first training prompts, and
    two episodes of the first prompt of each environment. Raises UserError.
    """
    prompts = _prompts(config.model, config.tasks, config.recipe.max_prompt_tokens, num_prompts)
    if any(item.prompt.environment for item in prompts):
        await check_chat_format(config.model, config.tasks.prompt_format)
    began_at = time.monotonic()
    engine = await Engine.start(config, NAME, fork, own_weights=True)
    started_at = time.monotonic()
    exporter = Exporter(config.run)
    grader = GradingThreads(engine.decode, config.tasks, exporter)
    try:
        settings = (config.model, config.tasks, config.recipe, config.http)
        async with make_samplers(*settings, engine, exporter) as samplers:
            system = config.tasks.prompt_format.system
            tasks = [
                make_task(config.recipe, system, number, item)
                for number, item in enumerate(prompts)
            ]
            running = [
                (task, samplers.sampler(task, index, None))
                for task in tasks
                for index in range(task.num_rollouts)
            ]
            await asyncio.gather(*(sampler.run() for _, sampler in running))
            sampled_at = time.monotonic()
            await engine.observe()
            tried = [
                await _grade(engine, grader, prompts[task.sequence], task, sampler)
                for task, sampler in running
            ]
        seconds = sum(graded.seconds for _, graded in tried)
        return TrialRecord(
            started_at - began_at,
            sampled_at - started_at,
            seconds,
            tuple(completion for completion, _ in tried),
        )
    finally:
        await grader.close()
        engine.shutdown()


def _prompts(model: Model, tasks: Tasks, limit: int, num_prompts: int) -> list[TokenizedPrompt]:
    tokenizer = load_tokenizer(model)
    train = load(tasks).train
    chosen = []
    played_here = [
        environment.name
        for environment in tasks.environments
        if not isinstance(environment, SessionEnvironment) or environment.is_started_here
    ]
    for name in ("", *played_here):
        num_wanted = 1 if name else num_prompts
        prompts = [prompt for prompt in train if prompt.environment == name]
        few = prompts[: 4 * num_wanted]  # some may be too long
        short_prompts, _ = tokenize_prompts(tokenizer, few, limit, tasks.prompt_format)
        if few and not short_prompts:
            raise UserError(
                f"recipe.max_prompt_tokens = {limit}: each of the first {len(few)} prompts is "
                "longer; raise it"
            )
        chosen += short_prompts[:num_wanted]
    if not chosen:
        raise UserError(
            "tasks.environments: the programs of every environment run elsewhere, and none can be "
            "tried here; give one a command, or start the run with a small budget.steps"
        )
    return chosen


@contextlib.asynccontextmanager
async def make_samplers(
    model: Model,
    tasks: Tasks,
    recipe: Recipe,
    http_settings: Http,
    engine: Engine,
    exporter: Exporter,
) -> AsyncIterator[Samplers]:
    """The samplers of a generator; while they are in use, the endpoint of its harnesses is served
    on any free port.
    """
    num_slots = max(16, recipe.most_rollouts_per_prompt)
    sessions = make_sessions(model, tasks, http_settings)
    parts = episode_parts(model, tasks, num_slots, exporter)
    if parts is None:
        yield Samplers(engine)
        return
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(parts.close)
        if sessions is not None:
            serve_single_calls(sessions, engine, parts, recipe, num_slots)
            listener = listen(http_settings.bind, 0, setting="http.bind")
            closing.callback(serve(http_settings, listener, exporter, sessions).stop)
            closing.push_async_callback(sessions.close)
        yield Samplers(engine, parts, sessions)


def make_task(recipe: Recipe, system: str | None, number: int, item: TokenizedPrompt) -> PromptTask:
    """The task of the number-th prompt; system: begins a chat of an episode that lacks such a
    message.
    """
    prompt = item.prompt
    episode = make_episode_task(prompt, system, recipe.episodes) if prompt.environment else None
    return PromptTask(
        sequence=number,
        incarnation=0,
        purpose=Purpose.TRAIN,
        dataset=prompt.dataset,
        prompt_id=prompt.id,
        prompt_token_ids=np.asarray(item.token_ids, dtype=np.int32),
        # Two episodes show whether the world differs between them.
        num_rollouts=2 if prompt.environment else recipe.rollouts_per_prompt,
        sampling=Sampling(temperature=recipe.temperature),
        length=LengthBudget(recipe.max_completion_tokens),
        verifier=prompt.verifier,
        reference=prompt.reference,
        episode=episode,
    )


async def _grade(
    engine: Engine,
    grader: GradingThreads,
    item: TokenizedPrompt,
    task: PromptTask,
    sampler: Sampler,
) -> tuple[TriedCompletion, Graded]:
    graded = sampler.verdict
    if graded is None:
        graded = await grader.grade(task, sampler.answer_token_ids)
    rollout = sampler.rollout()
    completion = TriedCompletion(
        prompt=item.prompt.text,
        text=engine.decode(sampler.answer_token_ids),
        num_prompt_tokens=len(item.token_ids),
        num_tokens=sum(len(sequence.token_ids) for sequence in rollout.sequences),
        truncated=rollout.truncated,
        reward=graded.reward,
        status=str(graded.status),
        failure=graded.failure,
        environment=item.prompt.environment,
        end="" if rollout.episode is None else str(rollout.episode.end),
        turns=() if rollout.episode is None else _turns(engine, rollout, rollout.episode),
    )
    return completion, graded


def _turns(engine: Engine, rollout: Rollout, episode: Episode) -> tuple[TriedTurn, ...]:
    turns = []
    for number, turn in enumerate(episode.turns):
        token_ids = rollout.sequences[turn.sequence].token_ids
        later_starts = (
            later.start for later in episode.turns[number + 1 :] if later.sequence == turn.sequence
        )
        # Tokens between two turns of one sequence are the environment's answer.
        answer = token_ids[turn.end : next(later_starts, turn.end)]
        turns.append(
            TriedTurn(
                engine.decode(token_ids[turn.start : turn.end].tolist()),
                engine.decode(answer.tolist()),
            )
        )
    return tuple(turns)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.generator.trial", description="Samples a few prompts."
    )
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
