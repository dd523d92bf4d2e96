"""Tiny models, batches and run files made on the spot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.recipe.effective_batch import effective_batch
from rollcast.rollouts.records import Rollout, RolloutGroup, VersionSpan, loss_mask
from rollcast.runfolder.files import checkpoint_place
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.learner.batch import TrainingSequence, training_sequences
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.service import restore
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_task

VOCAB = 61
"""Prime, so that no sharding is even."""


def write_model(
    folder: Path,
    *,
    tied: bool = False,
    seed: int = 0,
    hidden: int = 32,
    vocab: int = VOCAB,
    layers: int = 2,
) -> Path:
    """Write a Qwen3 with random weights and a character tokenizer."""
    torch.manual_seed(seed)
    config = transformers.Qwen3Config(
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
    )
    model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # sharper distributions than the initialisation's: errors show
    model.save_pretrained(folder)
    vocabulary = {"<pad>": 0, "<eos>": 1} | {chr(60 + i): i + 2 for i in range(VOCAB - 2)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<eos>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


def newest_whole(config: RunConfig, group: LearnerGroup) -> Progress | None:
    """What a trainer with these settings goes on from."""
    place = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    return restore(config.run, place, group, resume=True)


def make_config(
    model_path: Path, run_folder: Path, /, **changes: Mapping[str, object]
) -> RunConfig:
    """Return a run file for float32 on CPU; `changes` are merged section by section."""
    sections: dict[str, dict[str, object]] = {
        "model": {"path": str(model_path), "dtype": "float32", "max_length": 128},
        "recipe": {
            "max_prompt_tokens": 32,
            "max_completion_tokens": 64,
            "length_control": {"kind": "none"},
            "optimizer": {"learning_rate": 1e-3, "warmup_steps": 4, "epsilon": 1e-8},
        },
        "trainer": {"tokens_per_micro_batch": 120, "logits_chunk_tokens": 7},
        "weights": {"bucket_bytes": 1 << 16},
    }
    for name, change in changes.items():
        sections[name] = {**sections.get(name, {}), **change}
    return parse_run_config({"run": "test", "folder": str(run_folder), **sections}, source="test")


def make_groups(seed: int, *, num_groups: int = 4, num_rollouts: int = 3) -> list[RolloutGroup]:
    """Return graded groups with lengths from 1 to 40 tokens, a forced token now and then."""
    rng = np.random.default_rng(seed)
    groups = []
    for sequence in range(num_groups):
        rollouts = []
        for index in range(num_rollouts):
            length = int(rng.integers(1, 40))
            ids = rng.integers(0, VOCAB, length).astype(np.int32)
            forced = ((length // 2, length // 2 + 2),) if length > 8 else ()
            logprobs = rng.normal(-4.0, 0.7, length).astype(np.float32)
            for start, end in forced:
                logprobs[start:end] = 0.0
            rollouts.append(
                Rollout(
                    index=index,
                    token_ids=ids,
                    logprobs=logprobs,
                    version_spans=(VersionSpan(PolicyVersion(1, 0), 0, length),),
                    loss_masked=forced,
                    reward=float((index + sequence) % 2),
                )
            )
        prompt = rng.integers(0, VOCAB, int(rng.integers(1, 20))).astype(np.int32)
        groups.append(
            make_answer_group(
                make_task(sequence, prompt_token_ids=prompt),
                rollouts,
                first_version=PolicyVersion(1, 0),
            )
        )
    return groups


def make_sequences(seed: int, **sizes: int) -> list[TrainingSequence]:
    """Return the effective batch of `make_groups` under the ScaleRL recipe."""
    groups = make_groups(seed, **sizes)
    rollouts = [
        (position, rollout) for position, group in enumerate(groups) for rollout in group.rollouts
    ]
    effective = effective_batch(
        rewards=np.array([rollout.reward for _, rollout in rollouts]),
        shaped=np.array([rollout.reward for _, rollout in rollouts]),
        group=np.array([position for position, _ in rollouts]),
        loss_tokens=np.array([int(loss_mask(rollout).sum()) for _, rollout in rollouts]),
        excluded=np.zeros(len(rollouts), dtype=np.bool_),
    )
    return training_sequences(groups, effective)
