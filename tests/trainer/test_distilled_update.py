"""Whole updates with token-level advantages and with a held teacher, against plain Hugging Face
models.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor, nn

from rollcast.config.errors import UserError
from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import (
    TrainingSequence,
    decode_micro_batches,
    denominator,
    encode_micro_batches,
)
from rollcast.trainer.learner.device_batch import pack_micro_batch, pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.learner import Learner, Reference
from rollcast.trainer.learner.model import shard_policy
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.teacher import HeldTeacher
from tests.trainer.tiny_models import make_config, make_sequences, write_model

COEFFICIENT, RATIO_MAX = 0.7, 5.0
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def teacher_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("teacher"), seed=7)


def shard(path: Path, ranks: Ranks) -> Any:
    return shard_policy(
        transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64),
        mesh=ranks.mesh,
        dtype=torch.float64,
        lm_head="fp32",
        temperature=1.0,
        logits_chunk_tokens=7,
        activation_checkpointing=False,
    )


def rows_of(model: nn.Module, sequence: TrainingSequence) -> Tensor:
    """[P + L, V] log-probs."""
    ids = torch.tensor([[*sequence.prompt_token_ids.tolist(), *sequence.token_ids.tolist()]])
    return torch.log_softmax(model(input_ids=ids).logits[0].double(), 1)


def slow_loss(
    model: nn.Module, teacher: nn.Module | None, sequences: list[TrainingSequence]
) -> tuple[Tensor, float | None]:
    """-J with CISPO, and the mean of log pi_gen - log pi_teacher, token by token."""
    objective = torch.zeros((), dtype=torch.float64)
    weight_sum = 0.0
    distances = []
    for s in sequences:
        rows = rows_of(model, s)
        first = len(s.prompt_token_ids) - 1
        for position, token in enumerate(s.token_ids.tolist()):
            if not s.loss_mask[position]:
                continue
            generator = float(s.generator_logprobs[position])
            advantage = (
                s.advantage if s.token_advantages is None else float(s.token_advantages[position])
            )
            if teacher is not None:
                with torch.no_grad():
                    distances.append(
                        generator - rows_of(teacher, s)[first + position, token].item()
                    )
                advantage -= COEFFICIENT * distances[-1]
            logprob = rows[first + position, token]
            ratio = min(math.exp(logprob.item() - generator), RATIO_MAX)
            objective = objective + s.weight * ratio * advantage * logprob
            weight_sum += s.weight
    return -objective / weight_sum, sum(distances) / len(distances) if distances else None


def with_token_advantages(sequences: list[TrainingSequence]) -> list[TrainingSequence]:
    """Every second sequence has advantages of its tokens."""
    rng = np.random.default_rng(3)
    return [
        replace(s, token_advantages=rng.normal(size=len(s.token_ids)).astype(np.float32))
        if index % 2
        else s
        for index, s in enumerate(sequences)
    ]


@pytest.mark.parametrize("is_taught", [False, True])
@pytest.mark.parametrize("of_tokens", [False, True])
def test_an_update_equals_a_slow_float64_loop(
    ranks: Ranks, model: Path, teacher_model: Path, tmp_path: Path, is_taught: bool, of_tokens: bool
) -> None:
    config = make_config(model, tmp_path)
    learner = Learner(
        shard(model, ranks),
        optimizer_settings=config.recipe.optimizer.model_copy(update={"max_grad_norm": 1e9}),
        loss=make_loss(config.recipe.loss),
        ranks=ranks,
        teacher=HeldTeacher(Reference(shard(teacher_model, ranks), 0.0).logprobs, COEFFICIENT)
        if is_taught
        else None,
    )
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    teacher = (
        transformers.AutoModelForCausalLM.from_pretrained(teacher_model, dtype=torch.float64)
        if is_taught
        else None
    )
    sequences = make_sequences(5)
    if of_tokens:
        sequences = with_token_advantages(sequences)
    loss, distance = slow_loss(plain, teacher, sequences)
    loss.backward()
    stats = learner.update([tuple(sequences[:4]), tuple(sequences[4:])], denominator(sequences))
    assert stats.loss == pytest.approx(loss.item(), rel=1e-9)
    assert stats.teacher_kl == (pytest.approx(distance, rel=1e-9) if is_taught else None)
    gradients = dict(plain.named_parameters())
    beta = learner.optimizer_settings.betas[0]
    for name, weight in learner.policy.named_weights():
        moment = learner.optimizer.state[weight]["exp_avg"].full_tensor() / (1 - beta)
        torch.testing.assert_close(moment, gradients[name].grad, rtol=1e-7, atol=1e-10)


def test_the_distance_to_the_teacher_is_counted_again_in_each_update(
    ranks: Ranks, model: Path, teacher_model: Path, tmp_path: Path
) -> None:
    """The recorded log-probs stay those of the start, so the first two updates measure the same."""
    distillation = {"teacher": {"kind": "folder", "path": str(teacher_model)}}
    group = LearnerGroup.build(
        make_config(model, tmp_path, recipe={"distillation": distillation}), ranks
    )
    teacher = group.learner.teacher
    assert teacher is not None
    first = group.update(make_sequences(5)).teacher_kl
    assert first is not None
    assert group.update(make_sequences(5)).teacher_kl == pytest.approx(first, rel=1e-6)
    assert len(group.specs) == len(list(group.learner.policy.named_weights()))


def test_a_teacher_that_does_not_fit_is_named(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    def build(path: Path) -> None:
        changes = {"distillation": {"teacher": {"kind": "folder", "path": str(path)}}}
        LearnerGroup.build(make_config(untied_model, tmp_path, recipe=changes), ranks)

    with pytest.raises(
        UserError,
        match=r"recipe\.distillation\.teacher\.path = .*absent.*: there is no such folder",
    ):
        build(tmp_path / "absent")
    with pytest.raises(
        UserError, match=r"teacher\.path = .* has a vocabulary of 53, model\.path one of 61"
    ):
        build(write_model(tmp_path / "smaller", vocab=53))
    build(write_model(tmp_path / "larger", vocab=67))


def test_token_advantages_travel_and_cost_nothing_where_there_are_none() -> None:
    sequences = make_sequences(5)
    plain = encode_micro_batches([tuple(sequences)], 1.0)
    assert b"token_advantages" not in plain
    changed = with_token_advantages(sequences)
    found = decode_micro_batches(encode_micro_batches([tuple(changed)], 1.0))[0][0]
    for sent, received in zip(changed, found, strict=True):
        if sent.token_advantages is None:
            assert received.token_advantages is None
        else:
            np.testing.assert_array_equal(received.token_advantages, sent.token_advantages)


@pytest.mark.parametrize("make", [pad_micro_batch, pack_micro_batch])
def test_each_loss_token_has_its_own_advantage_on_the_device(make: Any) -> None:
    changed = with_token_advantages(make_sequences(5))
    expected = [
        s.advantage if s.token_advantages is None else float(s.token_advantages[position])
        for s in changed
        for position in np.flatnonzero(s.loss_mask)
    ]
    assert make(tuple(changed), CPU).advantages.tolist() == expected
