"""Log-probs and gradients of the sharded policy on this device against plain Transformers in
float32 on the CPU.

The same random weights and tokens, through the learner's own padding on one side, and one sequence
at a time with the model's own logits on the other.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from rollcast.trainer.learner.batch import TrainingSequence
from rollcast.trainer.learner.device_batch import DeviceBatch, pad_micro_batch
from rollcast.trainer.learner.model import Policy
from rollcast.trainer.learner.ranks import Ranks
from testkit.gpu import models

MAX_LOGPROB_ERROR = 1e-3
"""Nats, in float32: 28 layers whose sums are taken in another order."""
MAX_GRADIENT_ERROR = 1e-3
"""Relative, in float32."""


def sequences(shape: str, *, is_small: bool) -> list[TrainingSequence]:
    """Two of different lengths, so that one is padded."""
    rng = np.random.default_rng(1)
    vocab = models.qwen3(shape).vocab_size
    prompt, lengths = (5, (11, 7)) if is_small else (64, (192, 128))
    return [
        models.random_sequence(rng, vocab, prompt, length, advantage, 1.0)
        for length, advantage in zip(lengths, (1.0, -0.5), strict=True)
    ]


def plain(model: Any, batch: list[TrainingSequence]) -> tuple[Tensor, dict[str, Tensor]]:
    """Log-probs [T] of the completions, and the gradient of sum A log pi by the weight's name."""
    completion_logprobs = []
    total = torch.zeros((), device=model.device)
    for sequence in batch:
        ids = torch.from_numpy(
            np.concatenate([sequence.prompt_token_ids, sequence.token_ids]).astype(np.int64)
        ).to(model.device)
        rows = torch.log_softmax(
            model(input_ids=ids[None], use_cache=False).logits[0].float(), dim=1
        )
        start = len(sequence.prompt_token_ids)
        logprobs = rows[start - 1 : -1].gather(1, ids[start:, None])[:, 0]
        total = total + sequence.advantage * logprobs.sum()
        completion_logprobs.append(logprobs.detach())
    total.backward()  # type: ignore[no-untyped-call]
    return torch.cat(completion_logprobs), {
        name: weight.grad for name, weight in model.named_parameters()
    }


def compare(
    model: Any,
    batch: list[TrainingSequence],
    expected: tuple[Tensor, dict[str, Tensor]],
    ranks: Ranks,
    dtype: torch.dtype,
) -> dict[str, Any]:
    """Log-probs of a copy of `model`, sharded on the device; its body in `dtype`."""
    policy = models.shard_model(copy.deepcopy(model), ranks, dtype=dtype)
    errors = errors_of(policy, pad_micro_batch(tuple(batch), ranks.device), expected)
    return {"dtype": str(dtype).removeprefix("torch."), **errors}


def errors_of(
    policy: Policy, batch: DeviceBatch, expected: tuple[Tensor, dict[str, Tensor]]
) -> dict[str, Any]:
    """Errors of log-probs and gradients against those of `plain`."""
    logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets, packing=batch.packing)
    (logprobs * batch.advantages.to(logprobs.dtype)).sum().backward()
    errors = (logprobs.detach() - expected[0].to(logprobs.device)).abs()
    error_norms, gradient_norms = {}, {}
    for name, weight in policy.named_weights():
        assert isinstance(weight.grad, DTensor)
        gradient = expected[1][name].double()
        found = weight.grad.full_tensor().to(gradient.device)
        error_norms[name] = float((found - gradient).norm())
        gradient_norms[name] = float(gradient.norm())
    assert gradient_norms.keys() == expected[1].keys()
    by_weight = {name: error_norms[name] / gradient_norms[name] for name in gradient_norms}
    worst = max(by_weight, key=lambda name: by_weight[name])
    return {
        "logprob_error_max": float(errors.max()),
        "logprob_error_mean": float(errors.mean()),
        "gradient_error": math.hypot(*error_norms.values()) / math.hypot(*gradient_norms.values()),
        "gradient_error_worst": by_weight[worst],
        "worst_weight": worst,
    }


def measure(name: str, ranks: Ranks, *, is_small: bool) -> dict[str, Any]:
    """Rows by the body's dtype; targets of float32."""
    shape = models.SMALL if is_small else "0.6b"
    model = models.random_model(shape, torch.device("cpu"))
    batch = sequences(shape, is_small=is_small)
    expected = plain(model, batch)
    model.zero_grad()
    rows = [
        compare(model, batch, expected, ranks, dtype) for dtype in (torch.float32, torch.bfloat16)
    ]
    return {
        "shape": shape,
        "tokens": sum(len(sequence.token_ids) for sequence in batch),
        "rows": rows,
        "targets": {
            f"log-probs in float32 within {MAX_LOGPROB_ERROR} nats": rows[0]["logprob_error_max"]
            <= MAX_LOGPROB_ERROR,
            f"gradients in float32 within {MAX_GRADIENT_ERROR}": rows[0]["gradient_error"]
            <= MAX_GRADIENT_ERROR,
        },
    }
