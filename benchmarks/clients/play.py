"""Some episodes of one client with a real engine: `python -m benchmarks.clients.play NAME FOLDER
[RECORDING]`; prints them as JSON.

FOLDER: of the installed client. RECORDING: file for the requests of the longer episode.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.clients.other_hosts import other_hosts, strace_command
from benchmarks.clients.recording import Recorder, endpoint_counts
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
MAX_EPISODES = 8
"""Played if the model, which answers without a call now and then, has called no tool so far."""
QUESTION = "What is the weather in Rome?"
PROGRAMS = Path(__file__).with_name("programs")


def make_config(client: Client, installed: Path, folder: Path, *, is_recorded: bool) -> RunConfig:
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
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    command = [python, str(PROGRAMS / (client.program or "run_command.py"))]
    if is_recorded:
        command = [sys.executable, str(PROGRAMS / "recorded_client.py"), *command]
        os.environ["RECORD_FOLDER"] = str(folder / "requests")
        (folder / "requests").mkdir()
    environment = {
        "kind": "harness",
        "name": "client",
        "command": strace_command(command, folder / "connections"),
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


async def play(
    client: Client, installed: Path, folder: Path, recording: Path | None
) -> dict[str, Any]:
    config = make_config(client, installed, folder, is_recorded=recording is not None)
    task_row = json.dumps({"prompt": QUESTION})
    prompt = Prompt("1", "rows", QUESTION, task_row, "exact", environment="client", answer='"-"')
    prompts, _ = tokenize_prompts(
        load_tokenizer(config.model), [prompt], 256, config.tasks.prompt_format
    )
    engine = await Engine.start(config, "clients", own_weights=True)
    exporter = Exporter("clients")
    try:
        async with make_samplers(
            config.model, config.tasks, config.recipe, config.http, engine, exporter
        ) as samplers:
            recorder = None if recording is None else Recorder(client, engine, exporter)
            row = await _play_episodes(
                client, config, engine, exporter, samplers, prompts[0], recorder
            )
            if recorder is not None and recording is not None and "failed" not in row["ends"]:
                recorder.longest(folder / "requests").write(recording)
            return row
    finally:
        engine.shutdown()


async def _play_episodes(
    client: Client,
    config: RunConfig,
    engine: Engine,
    exporter: Exporter,
    samplers: Samplers,
    item: TokenizedPrompt,
    recorder: Recorder | None,
) -> dict[str, Any]:
    began = time.monotonic()
    task = make_task(config.recipe, None, 0, item)
    rollouts: list[Rollout] = []
    for index in range(MAX_EPISODES):
        if index >= NUM_EPISODES and (client.call_share == 0 or _num_calls(rollouts)):
            break
        sampler = samplers.sampler(task, index, None)
        await sampler.run()
        await engine.observe()
        rollouts.append(sampler.rollout())
        if recorder is not None:
            recorder.end_episode(rollouts[-1])
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
        "tool_calls": _num_calls(rollouts),
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
        "other_hosts": other_hosts(Path(config.folder) / "connections"),
        "largest_logprob_error": max(
            (_largest_error(rollout, task, config) for rollout in rollouts), default=None
        ),
        **endpoint_counts(exporter),
    }


def _num_calls(rollouts: Sequence[Rollout]) -> int:
    return sum(
        turn.tool_calls
        for rollout in rollouts
        if rollout.episode is not None
        for turn in rollout.episode.turns
    )


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


def main() -> None:
    name, installed, *recordings = sys.argv[1:]
    recording = Path(recordings[0]) if recordings else None
    (client,) = (client for client in CLIENTS if client.name == name)
    with tempfile.TemporaryDirectory(prefix="client-") as folder:
        config = parse_run_config(
            {"run": "clients", "model": {"path": folder}}, source="benchmarks.clients"
        )
        set_environment(config.generator)
        row = asyncio.run(play(client, Path(installed), Path(folder), recording))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
