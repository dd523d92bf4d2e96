"""Speculative decoding on this card: whether drafts leave the sampled tokens and their log-probs as
they are, and how many are accepted.

The engine of a generator samples rollouts while its weights change twice: without drafts, with
those of n-grams, and with those of a model that has the first weights. Each rollout is replayed in
float32 on the CPU by plain Transformers. Drafts are refused on GPUs until this part has met its
targets on one (`rollcast.config.drafts`).
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import Qwen3ForCausalLM

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.generator.sampling import RolloutSampler
from rollcast.generator.vllm import engine_start
from rollcast.generator.vllm.engine import Engine
from rollcast.rollouts.records import LengthBudget, PromptTask, Purpose, Rollout, Sampling
from rollcast.wire.version import PolicyVersion
from testkit.gpu import first_token, models
from testkit.gpu.parts import report
from testkit.gpu.run_settings import SERVED
from testkit.replay import replay_logprobs
from testkit.tiny_model import perturb

PROMPT_TOKENS = 40
MAX_TOKENS = 256
"""The longest rollout: enough steps for two updates, also of a tiny model on a busy machine."""
NUM_VERSIONS = 3
MAX_ERROR_RATIO = 3.0
"""Largest log-prob error with drafts, as a multiple of that without: other shapes of products, and
the largest of other tokens."""
MAX_REPLAY_ERROR = 1e-4
"""Allowed anyway, in float32."""
MAX_STANDARD_ERRORS = 4.0
"""Between the mean log-probs of rollouts with and without drafts."""


def measure(name: str, *, is_small: bool) -> dict[str, Any]:
    """A row for each way of drafting; targets."""
    with tempfile.TemporaryDirectory(prefix="rollcast-proof-") as path:
        folder = Path(path)
        weights = make_versions(folder, is_small=is_small)
        rows: list[dict[str, Any]] = []
        for drafts in drafting(folder):
            rows.append(asyncio.run(sample_row(folder, drafts, weights, is_small=is_small)))
            report({"rows": rows})
    return {"shape": shape_name(is_small=is_small), "rows": rows, "targets": targets(rows)}


def shape_name(*, is_small: bool) -> str:
    return models.SMALL if is_small else "28m"


def drafting(folder: Path) -> list[dict[str, Any] | None]:
    """Settings of drafts; None = none are drafted, to compare with."""
    ngram = {"method": "ngram", "prompt_lookup_min": 1, "prompt_lookup_max": 3}
    model = {"method": "draft_model", "model": str(folder / "model")}
    return [None, *(drafts | {"num_speculative_tokens": 3} for drafts in (ngram, model))]


def make_versions(folder: Path, *, is_small: bool) -> dict[PolicyVersion, dict[str, Any]]:
    """A model of random weights, and a file for each version; the first has the model's own."""
    model = write_peaked_model(
        folder,
        shape_name(is_small=is_small),
        end_stride=97 if is_small else first_token.END_STRIDE,
    )
    base = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    weights = {}
    for step in range(NUM_VERSIONS):
        version = PolicyVersion(1, step)
        weights[version] = perturb(base, step, scale=0.05) if step else base
        save_file(weights[version], version_file(folder, version))
    return weights


def write_peaked_model(
    folder: Path,
    shape: str,
    *,
    end_stride: int,
    is_tied: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """A model of random weights in `folder`/model, whose logits have a standard deviation of about
    3: a fresh model's distributions are nearly uniform, and errors do not show in them. One with a
    tied head repeats its last token.
    """
    config = models.qwen3(shape)
    config.tie_word_embeddings = is_tied
    if shape == models.SMALL:
        config.update(SERVED)
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    with torch.no_grad():
        scale = config.initializer_range * math.sqrt(config.hidden_size)
        model.model.norm.weight.mul_(3.0 / scale)
    first_token.write_model(folder / "model", model.to(dtype), end_stride=end_stride)
    return model


def version_file(folder: Path, version: PolicyVersion) -> Path:
    return folder / f"{version}.safetensors"


async def sample_row(
    folder: Path,
    drafts: dict[str, Any] | None,
    weights: dict[PolicyVersion, dict[str, Any]],
    *,
    is_small: bool,
) -> dict[str, Any]:
    """Rollouts with updates in flight, their replay, and what the engine counted."""
    config = run_config(folder, drafts)
    task = make_task(16 if is_small else 64, models.qwen3(shape_name(is_small=is_small)))
    engine_start.set_environment(config.generator)
    with unvalidated_drafts():
        engine = await Engine.start(config, "proof")
    try:
        first, *later = weights
        await engine.update(first, "load_file", str(version_file(folder, first)))
        began = time.monotonic()
        samplers = [RolloutSampler(engine, task, index) for index in range(task.num_rollouts)]
        # A hung engine ends the part.
        async with asyncio.timeout(100.0), asyncio.TaskGroup() as running:
            for sampler in samplers:
                running.create_task(sampler.run())
            for number, version in enumerate(later, 1):
                # Some rollouts end early: this many tokens are sampled while others go on.
                await reach(engine, samplers, number * task.num_rollouts * MAX_TOKENS // 8)
                await engine.update(version, "load_file", str(version_file(folder, version)))
        seconds = time.monotonic() - began
        await engine.observe()
        rollouts = [sampler.rollout() for sampler in samplers]
    finally:
        engine.shutdown()
    return {
        "drafts": None if drafts is None else drafts["method"],
        "tokens_per_second": round(sum(item.num_tokens for item in rollouts) / seconds, 1),
        "versions_of_a_rollout": max(len(rollout.version_spans) for rollout in rollouts),
        "drafted_tokens": engine.counts.drafted_tokens,
        "accepted_tokens": engine.counts.accepted_tokens,
        **replay_figures(folder, rollouts, task, weights),
    }


async def reach(engine: Engine, samplers: list[RolloutSampler], num_tokens: int) -> None:
    """Return when this many tokens are sampled, or all rollouts have ended."""
    while engine.counts.sampled_tokens < num_tokens:
        if all(sampler.finished for sampler in samplers):
            return
        await asyncio.sleep(0.01)
        await engine.observe()


@contextmanager
def unvalidated_drafts() -> Iterator[None]:
    """Engines that start within it may have drafts on a GPU, and load versions from files."""
    make_arguments = engine_start.engine_arguments

    def engine_arguments(config: RunConfig, name: str) -> dict[str, Any]:
        arguments = make_arguments(config, name)
        return arguments | {"worker_extension_cls": "testkit.generator.file_worker.FileWorker"}

    with (
        patch.object(engine_start, "check_gpu_drafts", lambda drafts: None),
        patch.object(engine_start, "engine_arguments", engine_arguments),
    ):
        yield


def run_config(
    folder: Path,
    drafts: dict[str, Any] | None,
    *,
    dtype: str = "float32",
    slots: int = 64,
    budget: int = MAX_TOKENS,
    **engine: str,
) -> RunConfig:
    """`budget`: completion tokens. `engine`: other settings of generator.engine."""
    return parse_run_config(
        {
            "run": "proof",
            "folder": str(folder / "runs"),
            "model": {
                "path": str(folder / "model"),
                "dtype": dtype,
                "max_length": PROMPT_TOKENS + budget,
            },
            "recipe": {
                "length_control": {"kind": "none"},
                "max_prompt_tokens": PROMPT_TOKENS,
                "max_completion_tokens": budget,
            },
            "generator": {
                "slots": slots,
                "block_size": 32,
                "engine": {"speculative_config": drafts, **engine},
            },
        },
        source="proof",
    )


def make_task(num_rollouts: int, model_config: Any, *, seed: int = 1) -> PromptTask:
    """`seed`: of the prompt, and the task's number."""
    prompt = np.random.default_rng(seed).integers(0, model_config.vocab_size, PROMPT_TOKENS)
    return PromptTask(
        sequence=seed,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="proof",
        prompt_id=str(seed),
        prompt_token_ids=prompt.astype(np.int32),
        num_rollouts=num_rollouts,
        sampling=Sampling(temperature=0.7),
        length=LengthBudget(max_tokens=MAX_TOKENS),
        verifier="arithmetic",
        reference='"1"',
    )


def replay_figures(
    folder: Path,
    rollouts: list[Rollout],
    task: PromptTask,
    weights: dict[PolicyVersion, dict[str, Any]],
) -> dict[str, Any]:
    model = Qwen3ForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    prompt = task.prompt_token_ids.tolist()
    errors = []
    for rollout in rollouts:
        replayed = replay_logprobs(rollout, prompt, weights, model, task.sampling.temperature)
        errors.append(np.abs(replayed - rollout.logprobs))
    # A rollout counts once, because its tokens depend on one another.
    means = [float(rollout.logprobs.mean()) for rollout in rollouts]
    return {
        "tokens": sum(rollout.num_tokens for rollout in rollouts),
        "logprob_error_max": float(max(error.max() for error in errors)),
        "logprob_error_mean": float(np.concatenate(errors).mean()),
        "logprob_mean": float(np.mean(means)),
        "logprob_mean_standard_error": float(np.std(means, ddof=1) / math.sqrt(len(means))),
    }


def targets(rows: list[dict[str, Any]]) -> dict[str, bool]:
    """Compare the rows with drafts with the first, which is without."""
    plain, *drafted = rows
    allowed = max(MAX_REPLAY_ERROR, MAX_ERROR_RATIO * plain["logprob_error_max"])
    errors = [
        math.hypot(row["logprob_mean_standard_error"], plain["logprob_mean_standard_error"])
        for row in drafted
    ]
    return {
        "log-probs of drafted tokens as near to their replay as others": all(
            row["logprob_error_max"] <= allowed for row in drafted
        ),
        "sampled tokens as likely as without drafts": all(
            abs(row["logprob_mean"] - plain["logprob_mean"]) <= MAX_STANDARD_ERRORS * error
            for row, error in zip(drafted, errors, strict=True)
        ),
        "drafts are accepted": all(row["accepted_tokens"] > 0 for row in drafted),
        "weights changed in flight": all(row["versions_of_a_rollout"] > 1 for row in rows),
    }
