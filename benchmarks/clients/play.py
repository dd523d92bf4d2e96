"""Two episodes of one client with a real engine: `python -m benchmarks.clients.play NAME FOLDER`;
prints them as JSON.

FOLDER: of the installed client.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clients.scripted_model import write_scripted_model
from benchmarks.clients.table import CLIENTS, Client
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.samplers import Samplers
from rollcast.generator.trial import make_samplers, make_task
from rollcast.generator.vllm.engine import SKELETON, Engine
from rollcast.generator.vllm.engine_start import set_environment
from rollcast.rollouts.records import PromptTask, Rollout
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.tokens import TokenizedPrompt, load_tokenizer, tokenize_prompts
from rollcast.telemetry.exporter import Exporter
from testkit.replay import replay_logprobs

NUM_EPISODES = 2
QUESTION = "What is the weather in Rome?"
PROGRAMS = Path(__file__).with_name("programs")
COUNTED = {
    "further_sequences": ("rollcast_endpoint_sequences_total", "reason"),
    "refused": ("rollcast_endpoint_refused_requests_total", "code"),
    "replaced": ("rollcast_endpoint_replaced_settings_total", "environment"),
    "untrained_tokens": ("rollcast_endpoint_single_tokens_total", ""),
}


def make_config(client: Client, installed: Path, folder: Path) -> RunConfig:
    write_scripted_model(
        folder / "model",
        client.tool,
        client.arguments,
        client.answer,
        client.max_length,
        client.call_share,
    )
    (folder / "rows.jsonl").write_text(json.dumps({"prompt": QUESTION}) + "\n")
    python = sys.executable if client.from_npm else str(installed / "bin" / "python")
    os.environ["CLIENT_BIN"] = str(installed / "node_modules" / ".bin")
    os.environ["CLIENT_COMMAND"] = json.dumps(client.command)
    os.environ.update(client.variables)
    environment = {
        "kind": "harness",
        "name": "client",
        "command": [python, str(PROGRAMS / (client.program or "run_command.py"))],
        "reward": "verifier",
        "sampling": "run",
        "model_exit_codes": [1],
        "reset_seconds": 300,
        "call_seconds": 300,
        "restarts": 0,
    }
    settings = {
        "run": "clients",
        "folder": str(folder),
        "model": {"path": str(folder / "model"), "dtype": "float32",
            "max_length": client.max_length},
        "tasks": {
            "environments": [environment],
            "dataset": {
                "kind": "jsonl", "name": "rows", "path": str(folder / "rows.jsonl"),
                "environment": "client",
                "verifier": "exact",
            },
        },
        "recipe": {
            "rollouts_per_prompt": NUM_EPISODES,
            "max_prompt_tokens": 256,
            "max_completion_tokens": client.max_length - 512,
            "length_control": {"kind": "none"},
            "episodes": {"max_turns": 12, "max_seconds": 600},
        },
        "generator": {"slots": 16, "block_size": 32, "cpu_kv_cache_gib": 1},
        "trainer": {"threads": 1},
        "budget": {"steps": 1},
    }  # fmt: skip
    return parse_run_config(settings, source="benchmarks.clients")


async def play(client: Client, installed: Path, folder: Path) -> dict[str, Any]:
    config = make_config(client, installed, folder)
    row = json.dumps({"prompt": QUESTION})
    prompt = Prompt("1", "rows", QUESTION, row, "exact", environment="client", answer='"-"')
    prompts, _ = tokenize_prompts(
        load_tokenizer(config.model), [prompt], 256, config.tasks.prompt_format
    )
    engine = await Engine.start(config, "clients", own_weights=True)
    exporter = Exporter("clients")
    try:
        async with make_samplers(
            config.model, config.tasks, config.recipe, config.http, engine, exporter
        ) as samplers:
            return await _play_episodes(client, config, engine, exporter, samplers, prompts[0])
    finally:
        engine.shutdown()


async def _play_episodes(
    client: Client,
    config: RunConfig,
    engine: Engine,
    exporter: Exporter,
    samplers: Samplers,
    item: TokenizedPrompt,
) -> dict[str, Any]:
    began = time.monotonic()
    task = make_task(config.recipe, None, 0, item)
    rollouts = []
    for index in range(NUM_EPISODES):
        sampler = samplers.sampler(task, index, None)
        await sampler.run()
        await engine.observe()
        rollouts.append(sampler.rollout())
    episodes = [rollout.episode for rollout in rollouts if rollout.episode is not None]
    turns = [turn for episode in episodes for turn in episode.turns]
    return {
        "client": client.name,
        "packages": list(client.packages),
        "dialect": client.dialect,
        "seconds": round(time.monotonic() - began, 1),
        "ends": [str(episode.end) for episode in episodes],
        "reasons": [episode.reason for episode in episodes if episode.reason],
        "turns": len(turns),
        "calls_tools": client.call_share > 0,
        "tool_calls": sum(turn.tool_calls for turn in turns),
        "malformed_calls": sum(turn.malformed_calls for turn in turns),
        "prompt_tokens": [
            len(sequence) for rollout in rollouts for sequence in _prompts_of(rollout, task)
        ],
        "computed_tokens": sum(
            len(prompt) + len(sequence.token_ids)
            for rollout in rollouts
            for sequence, prompt in zip(rollout.sequences, _prompts_of(rollout, task), strict=True)
        ),
        "computed_tokens_if_each_turn_began_anew": sum(
            len(_prompts_of(rollout, task)[turn.sequence]) + turn.end
            for rollout in rollouts
            if rollout.episode is not None
            for turn in rollout.episode.turns
        ),
        "largest_logprob_error": max(
            (_largest_error(rollout, task, config) for rollout in rollouts), default=None
        ),
        **{name: _counts(exporter, *counted) for name, counted in COUNTED.items()},
    }


def _prompts_of(rollout: Rollout, task: PromptTask) -> list[list[int]]:
    return [
        rollout.sequence_prompt(sequence, task.prompt_token_ids).tolist()
        for sequence in rollout.sequences
    ]


def _largest_error(rollout: Rollout, task: PromptTask, config: RunConfig) -> float:
    """Between the recorded log-probs and those of plain Transformers."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(config.model.path).float().eval()
    weights = {SKELETON: {name: value.detach().clone() for name, value in model.named_parameters()}}
    errors = [0.0]
    for sequence, prompt in zip(rollout.sequences, _prompts_of(rollout, task), strict=True):
        if len(sequence.token_ids):
            replayed = replay_logprobs(sequence, prompt, weights, model)
            errors.append(float(np.abs(replayed - sequence.logprobs).max()))
    return max(errors)


def _counts(exporter: Exporter, metric: str, label: str) -> dict[str, float]:
    counts: dict[str, float] = {}
    for family in exporter.registry.collect():
        for sample in family.samples:
            if sample.name == metric and sample.value:
                key = sample.labels.get(label, "all")
                counts[key] = counts.get(key, 0.0) + sample.value
    return counts


def main() -> None:
    name, installed = sys.argv[1:]
    (client,) = (client for client in CLIENTS if client.name == name)
    with tempfile.TemporaryDirectory(prefix="client-") as folder:
        config = parse_run_config(
            {"run": "clients", "model": {"path": folder}}, source="benchmarks.clients"
        )
        set_environment(config.generator)
        print(json.dumps(asyncio.run(play(client, Path(installed), Path(folder)))), flush=True)


if __name__ == "__main__":
    main()
