"""Ratios of trainer to generators before and after TIS and IcePop, with 8-bit weights and an 8-bit
KV cache.

    python -m benchmarks.corrections

The real vLLM engine on CPU samples from tiny random models; the learner's log-probs of the same
tokens make the ratios: with the weights that sampled them, and after a few updates. Each engine has
a process of its own; one that this processor cannot run is recorded with its error. Random models
of two layers show the effect of the corrections, not how large a gap a real model has. Writes
results/corrections.json; exit status 1 if no engine ran.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rollcast.config.corrections import NO_CORRECTIONS, Corrections, RatioMask, RatioTruncation
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import EngineRequest
from rollcast.generator.vllm.engine_start import set_environment
from rollcast.recipe.corrections import correct
from rollcast.recipe.losses.loss import LossInputs
from rollcast.recipe.ratios import ratio_sums
from rollcast.rollouts.records import Sampling
from rollcast.trainer.learner.batch import TrainingSequence, denominator
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from testkit.record import write_result
from testkit.tiny_model import make_architecture

ENGINES: dict[str, tuple[str, dict[str, str]]] = {
    "bfloat16": ("qwen3", {}),
    "8-bit weights": ("qwen3", {"quantization": "fp8_per_channel"}),
    "8-bit KV cache": ("qwen3", {"kv_cache_dtype": "fp8"}),
    "8-bit weights and KV cache": (
        "qwen3",
        {"quantization": "fp8_per_channel", "kv_cache_dtype": "fp8"},
    ),
    "mixture of experts without router replay": ("qwen3_moe", {}),
}
"""Architecture of the model and arguments of the engine."""
UNBOUNDED = 1e30
CORRECTIONS = {
    "none": NO_CORRECTIONS,
    "none, sequence": Corrections(truncation=RatioTruncation(ratio_max=UNBOUNDED, over="sequence")),
    "TIS, token": Corrections(truncation=RatioTruncation()),
    "TIS, sequence": Corrections(truncation=RatioTruncation(over="sequence")),
    "IcePop": Corrections(mask=RatioMask()),
}
"""With their default bounds: C = 2, and [0.5, 5]. The second is what TIS over the sequence
truncates."""
PROMPTS, PROMPT_TOKENS, COMPLETION_TOKENS = 48, 24, 96
UPDATES = 4
"""After which the ratios are read again: as for tokens that are this many steps old."""
LEARNING_RATE = 3e-4
TIMEOUT_SECONDS = 900.0
"""Deadline of one engine, whose kernels may have to be compiled."""


def run_config(folder: Path, architecture: str, engine: dict[str, str]) -> RunConfig:
    make_architecture(folder / "model", architecture)
    return parse_run_config(
        {
            "run": "corrections",
            "folder": str(folder / "runs"),
            "model": {"path": str(folder / "model"), "dtype": "bfloat16", "max_length": 256},
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": 64,
                "max_completion_tokens": 128,
                "optimizer": {"learning_rate": LEARNING_RATE, "warmup_steps": 0},
            },
            "trainer": {"tokens_per_micro_batch": 2_000, "logits_chunk_tokens": 256},
            "generator": {"slots": PROMPTS, "block_size": 32, "engine": engine},
        },
        source="benchmarks.corrections",
    )


async def sample(config: RunConfig) -> list[TrainingSequence]:
    """Completions of random prompts, from the model's own weights.

    Raises whatever ends the engine.
    """
    rng = np.random.default_rng(0)
    prompts = rng.integers(3, 50, (PROMPTS, PROMPT_TOKENS)).astype(np.int32)
    engine = await Engine.start(config, "corrections", own_weights=True)
    try:
        requests = [
            EngineRequest(
                prompt.tolist(), COMPLETION_TOKENS, Sampling(), seed, lambda version: str(version)
            )
            for seed, prompt in enumerate(prompts)
        ]
        sampled = await asyncio.gather(*(engine.sample(request) for request in requests))
    finally:
        engine.shutdown()
    return [
        TrainingSequence(
            prompt_token_ids=prompt,
            token_ids=np.asarray(one.token_ids, dtype=np.int32),
            generator_logprobs=np.asarray(one.logprobs, dtype=np.float32),
            loss_mask=np.ones(len(one.token_ids), dtype=np.bool_),
            advantage=1.0 - 2.0 * (index % 2),
            weight=1.0,
        )
        for index, (prompt, one) in enumerate(zip(prompts, sampled, strict=True))
    ]


def loss_inputs(group: LearnerGroup, sequences: list[TrainingSequence]) -> LossInputs:
    """All tokens under the learner's weights of now."""
    batch = pad_micro_batch(tuple(sequences), torch.device("cpu"))
    with torch.no_grad():
        logprobs, _ = group.learner.policy(batch.input_ids, batch.positions, batch.targets)
    return LossInputs(
        logprobs=logprobs.double(),
        generator_logprobs=batch.generator_logprobs.double(),
        advantages=batch.advantages,
        weights=batch.weights,
        rollout=batch.rollout,
    )


def ratios(inputs: LossInputs, corrections: Corrections) -> dict[str, float]:
    """Statistics of the tokens that keep a weight. The effective share is of the ratios as they
    weigh the loss: raw ones without TIS, truncated ones with it."""
    corrected = correct(corrections, inputs)
    kept = ~corrected.masked
    log_ratio = (inputs.logprobs - inputs.generator_logprobs)[kept]
    sums = ratio_sums(log_ratio)
    weights = (
        corrected.inputs.weights[kept] if corrections.truncation is not None else log_ratio.exp()
    )
    return {
        "truncated_share": _mean(corrected.truncated),
        "masked_share": _mean(corrected.masked),
        "effective_sample_share": (
            weights.sum() ** 2 / (len(inputs.weights) * weights.square().sum())
        ).item(),
        "generator_kl": sums.divergence.item() / len(log_ratio),
        "logprob_gap_mean": log_ratio.abs().mean().item(),
        "logprob_gap_max": log_ratio.abs().max().item(),
        "ratio_max": log_ratio.exp().max().item(),
    }


def _mean(marks: Tensor) -> float:
    return marks.double().mean().item()


def measured(config: RunConfig, sequences: list[TrainingSequence]) -> dict[str, Any]:
    ranks = join_ranks(timeout_seconds=30, threads=1)
    try:
        group = LearnerGroup.build(config, ranks)
        found: dict[str, Any] = {"tokens": sum(len(one.token_ids) for one in sequences)}
        for age in ("fresh", f"{UPDATES} updates old"):
            inputs = loss_inputs(group, sequences)
            found[age] = {
                name: ratios(inputs, corrections) for name, corrections in CORRECTIONS.items()
            }
            if age == "fresh":
                other = [replace(one, weight=1.0 / denominator(sequences)) for one in sequences]
                for _ in range(UPDATES):
                    group.update(other)
        return found
    finally:
        ranks.leave()


def one_engine(name: str) -> dict[str, Any]:
    """The figures of one engine, or the sentence with which it ended."""
    architecture, arguments = ENGINES[name]
    with tempfile.TemporaryDirectory() as folder:
        config = run_config(Path(folder), architecture, arguments)
        set_environment(config.generator)
        try:
            sequences = asyncio.run(sample(config))
        except (
            Exception
        ) as error:  # an engine fails with errors of any kind, and the answer is which
            return {"error": " ".join(str(error).split())}
        return measured(config, sequences)


def in_a_process(name: str) -> dict[str, Any]:
    """Run one engine in a process of its own."""
    architecture, arguments = ENGINES[name]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [
            sys.executable,
            "-m",
            "benchmarks.corrections",
            "--engine",
            name,
            "--out",
            str(out),
        ]
        ended = subprocess.run(command, timeout=TIMEOUT_SECONDS, check=False)
        found = (
            json.loads(out.read_text())
            if out.exists()
            else {"error": f"exit status {ended.returncode}"}
        )
    return {"model": architecture, "engine": arguments} | found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engine", choices=ENGINES, help="only this one, in this process")
    parser.add_argument("--out", type=Path, help="file for its figures")
    chosen = parser.parse_args()
    if chosen.engine is not None:
        text = json.dumps(one_engine(chosen.engine), indent=1)
        print(text) if chosen.out is None else chosen.out.write_text(text)
        return 0
    figures = {name: in_a_process(name) for name in ENGINES}
    print(write_result("corrections", {"engines": figures}))
    return 1 if all("error" in found for found in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
