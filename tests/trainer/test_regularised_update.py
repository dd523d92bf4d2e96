"""KL to a reference policy and the entropy bonus in whole updates, against plain Hugging Face
models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.config.errors import UserError
from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import denominator
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.head import Head, LogitShape
from rollcast.trainer.learner.learner import Learner, Reference
from rollcast.trainer.learner.model import shard_policy
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.slow_update import slow_loss
from tests.trainer.tiny_models import make_config, make_sequences, write_model

KL, ENTROPY = 0.3, 0.2


@pytest.fixture(scope="module")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("other"), seed=7)


@pytest.mark.parametrize(("kl", "entropy"), [(KL, 0.0), (0.0, ENTROPY), (KL, ENTROPY)])
def test_update_equals_a_slow_float64_loop(
    ranks: Ranks, model: Path, other_model: Path, tmp_path: Path, kl: float, entropy: float
) -> None:
    config = make_config(model, tmp_path)

    def shard(path: Path) -> Any:
        return shard_policy(
            transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64),
            mesh=ranks.mesh,
            dtype=torch.float64,
            lm_head="fp32",
            temperature=1.0,
            logits_chunk_tokens=7,
            activation_checkpointing=False,
        )

    learner = Learner(
        shard(model),
        optimizer_settings=config.recipe.optimizer.model_copy(update={"max_grad_norm": 1e9}),
        loss=make_loss(config.recipe.loss),
        ranks=ranks,
        reference=Reference(shard(other_model), kl, "k1") if kl else None,
        entropy_bonus=entropy,
    )
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    reference = transformers.AutoModelForCausalLM.from_pretrained(other_model, dtype=torch.float64)
    sequences = [
        replace(one, kl_factor=0.4 + 0.3 * place, entropy_factor=1.6 - 0.3 * place)
        for place, one in enumerate(make_sequences(5))
    ]
    loss, distance = slow_loss(plain, reference, sequences, kl=kl, entropy=entropy)
    loss.backward()
    stats = learner.update([tuple(sequences[:4]), tuple(sequences[4:])], denominator(sequences))
    assert stats.loss == pytest.approx(loss.item(), rel=1e-9)
    assert stats.kl == (pytest.approx(distance, rel=1e-9) if kl else None)
    gradients = dict(plain.named_parameters())
    beta = learner.optimizer_settings.betas[0]
    for name, weight in learner.policy.named_weights():
        moment = learner.optimizer.state[weight]["exp_avg"].full_tensor() / (1 - beta)
        torch.testing.assert_close(moment, gradients[name].grad, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_initial_model_is_the_reference_and_the_policy_leaves_it(
    ranks: Ranks, model: Path, tmp_path: Path, dtype: str
) -> None:
    sections: dict[str, Any] = {"recipe": {"kl": {"coefficient": 0.1}}, "model": {"dtype": dtype}}
    group = LearnerGroup.build(make_config(model, tmp_path, **sections), ranks)
    assert group.learner.reference is not None
    frozen = [
        weight.full_tensor().clone() for _, weight in group.learner.reference.policy.named_weights()
    ]
    distances = [group.update(make_sequences(5)).kl for _ in range(4)]
    assert distances[0] == 0.0
    assert all(distance is not None and distance > 0 for distance in distances[1:])
    after = [weight.full_tensor() for _, weight in group.learner.reference.policy.named_weights()]
    assert all(torch.equal(a, b) for a, b in zip(frozen, after, strict=True))
    # What is published, saved and exported is the policy alone.
    assert len(group.specs) == len(frozen)


def test_the_penalty_holds_the_policy_near_its_reference(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    def distance(coefficient: float) -> float:
        changes = {
            "kl": {"coefficient": coefficient},
            "optimizer": {"learning_rate": 3e-3, "warmup_steps": 0},
        }
        group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe=changes), ranks)
        return sum(group.update(make_sequences(5)).kl or 0.0 for _ in range(12))

    assert distance(30.0) < 0.5 * distance(1e-6)


def test_a_reference_that_does_not_fit_is_named(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    def build(reference: Path) -> None:
        changes = {"kl": {"reference": str(reference)}}
        LearnerGroup.build(make_config(untied_model, tmp_path, recipe=changes), ranks)

    with pytest.raises(
        UserError, match=r"recipe\.kl\.reference = .*absent.*: there is no such folder"
    ):
        build(tmp_path / "absent")
    with pytest.raises(
        UserError, match=r"recipe\.kl\.reference = .* has a vocabulary of 67, model\.path one of 61"
    ):
        build(write_model(tmp_path / "larger", vocab=67))


def test_a_larger_batch_has_a_larger_rate_where_the_recipe_says_so(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    optimizer = {"learning_rate": 1e-3, "warmup_steps": 0, "scale_with_batch": True}
    changes = {"optimizer": optimizer, "prompts_per_step": 12, "rollouts_per_prompt": 16}
    group = LearnerGroup.build(make_config(untied_model, tmp_path, recipe=changes), ranks)
    assert group.update(make_sequences(5)).learning_rate == pytest.approx(5e-4)
    assert [parameters["lr"] for parameters in group.learner.optimizer.param_groups] == [
        pytest.approx(5e-4)
    ]


def head_inputs(num_tokens: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(3)
    yield torch.randn(num_tokens, 12, generator=generator, dtype=torch.float64).requires_grad_()
    yield nn.Parameter(torch.randn(37, 12, generator=generator, dtype=torch.float64))
    yield torch.randint(37, (num_tokens,), generator=generator)
    yield torch.randn(num_tokens, generator=generator, dtype=torch.float64)
    yield torch.randn(num_tokens, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("chunk_tokens", [4, 8, 100])
@pytest.mark.parametrize("with_logprobs", [True, False])
@pytest.mark.parametrize("shape", [LogitShape(), LogitShape(cap=3.0, scale=0.8)])
def test_entropys_gradient_equals_full_logits(
    temperature: float, chunk_tokens: int, with_logprobs: bool, shape: LogitShape
) -> None:
    hidden, weight, targets, upstream, upstream_entropy = head_inputs(23)
    assert isinstance(weight, nn.Parameter)
    logits = hidden @ weight.t()
    if shape.cap is not None:
        logits = shape.scale * shape.cap * torch.tanh(logits / shape.cap)
    rows = torch.log_softmax(logits / temperature, 1)
    expected = (-(rows.exp() * rows).sum(1) * upstream_entropy).sum()
    if with_logprobs:
        expected = expected + (rows.gather(1, targets[:, None])[:, 0] * upstream).sum()
    expected_gradients = torch.autograd.grad(expected, [hidden, weight])
    head = Head(
        weight, precision="fp32", shape=shape, temperature=temperature, chunk_tokens=chunk_tokens
    )
    logprobs, entropy = head(hidden, targets)
    total = (entropy * upstream_entropy).sum() + (
        (logprobs * upstream).sum() if with_logprobs else 0.0
    )
    for found, wanted in zip(
        torch.autograd.grad(total, [hidden, weight]), expected_gradients, strict=True
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_entropys_gradient_equals_finite_differences() -> None:
    hidden, weight, targets, upstream, upstream_entropy = head_inputs(5)
    assert isinstance(weight, nn.Parameter)
    head = Head(weight, precision="fp32", temperature=0.8, chunk_tokens=2)

    def total(values: Tensor) -> Tensor:
        logprobs, entropy = head(values, targets)
        return (entropy * upstream_entropy + logprobs * upstream).sum()

    assert torch.autograd.gradcheck(total, [hidden], eps=1e-6, atol=1e-7)


class LargestTensor(TorchDispatchMode):
    """The largest tensor that any operation returned."""

    numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.numel = max(self.numel, tensor.numel())
        return result


def test_the_logits_of_all_tokens_never_exist_at_once() -> None:
    vocab, tokens, chunk = 400, 256, 16
    weight = nn.Parameter(torch.randn(vocab, 8))
    hidden = torch.randn(tokens, 8, requires_grad=True)
    with LargestTensor() as largest:
        logprobs, entropy = Head(weight, precision="fp32", chunk_tokens=chunk)(
            hidden, torch.zeros(tokens).long()
        )
        (logprobs.sum() + 0.1 * entropy.sum()).backward()
    assert largest.numel == max(chunk * vocab, vocab * 8)
