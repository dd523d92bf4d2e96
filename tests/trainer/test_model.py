from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rollcast.config.errors import UserError
from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences


@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_logprobs_equal_plain_transformers(
    ranks: Ranks, model: Path, tmp_path: Path, temperature: float
) -> None:
    config = make_config(model, tmp_path, recipe={"temperature": temperature})
    policy = LearnerGroup.build(config, ranks).learner.policy
    sequences = make_sequences(1)
    batch = pad_micro_batch(tuple(sequences), ranks.device)
    logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets)

    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    expected = []
    for sequence in sequences:
        ids = torch.tensor([[*sequence.prompt_token_ids, *sequence.token_ids]]).long()
        with torch.no_grad():
            rows = torch.log_softmax(plain(input_ids=ids).logits[0].double() / temperature, dim=1)
        for offset, token in enumerate(sequence.token_ids):
            if sequence.loss_mask[offset]:
                expected.append(rows[len(sequence.prompt_token_ids) + offset - 1, int(token)])
    torch.testing.assert_close(logprobs.double(), torch.stack(expected), rtol=0, atol=2e-5)


def test_tied_weights_stay_one_parameter(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path), ranks)
    tied = model.name.startswith("tied")
    assert ("lm_head.weight" in {spec.name for spec in group.specs}) is not tied
    group.update(make_sequences(0))
    causal_lm = group.learner.policy.causal_lm
    same = causal_lm.get_output_embeddings().weight is causal_lm.get_input_embeddings().weight
    assert same is tied


class LargestTensor(TorchDispatchMode):
    """Sees every tensor that any operation returns, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.vocabulary_rows = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(value, Tensor) and value.dim() >= 2 and value.shape[-1] == VOCAB:
                self.vocabulary_rows = max(self.vocabulary_rows, value.numel() // VOCAB)
        return result


def test_no_more_logits_than_a_chunk_ever_exist(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    config = make_config(
        model, tmp_path, trainer={"tokens_per_micro_batch": 10_000, "logits_chunk_tokens": 5}
    )
    group = LearnerGroup.build(config, ranks)
    with LargestTensor() as seen:
        stats = group.update(make_sequences(0, num_groups=6))
    assert stats.micro_batches == 1
    assert stats.loss_tokens > 100
    # The head's weight and its gradient are [V, H]; transposed they show the hidden size, 32, as
    # rows.
    assert seen.vocabulary_rows <= 32


def test_activation_checkpointing_changes_nothing(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    def weights(activation_checkpointing: bool) -> list[Tensor]:
        trainer = {"activation_checkpointing": activation_checkpointing}
        group = LearnerGroup.build(make_config(untied_model, tmp_path, trainer=trainer), ranks)
        group.update(make_sequences(0))
        return [weight.full_tensor() for weight in group.learner.weights]

    for plain, checkpointed in zip(weights(False), weights(True), strict=True):
        assert torch.equal(plain, checkpointed)


def test_bfloat16_forward_keeps_float32_master_weights(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(
        make_config(untied_model, tmp_path, model={"dtype": "bfloat16"}), ranks
    )
    exact = LearnerGroup.build(make_config(untied_model, tmp_path), ranks)
    stats, expected = group.update(make_sequences(0)), exact.update(make_sequences(0))
    assert {weight.dtype for weight in group.learner.weights} == {torch.float32}
    assert stats.loss != expected.loss
    assert stats.loss == pytest.approx(expected.loss, rel=0.05)
    assert stats.grad_norm == pytest.approx(expected.grad_norm, rel=0.05)


def test_dropout_is_switched_off(ranks: Ranks, untied_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(untied_model, tmp_path / "dropout")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attention_dropout": 0.5}))
    policy = LearnerGroup.build(make_config(folder, tmp_path), ranks).learner.policy
    assert policy.causal_lm.config.attention_dropout == 0.0


@pytest.mark.parametrize(
    "fault", ["absent", "no config", "no weights", "cut weights", "one weight missing", "softcap"]
)
def test_a_model_that_cannot_be_trained_is_one_sentence(
    ranks: Ranks, untied_model: Path, tmp_path: Path, fault: str
) -> None:
    folder = shutil.copytree(untied_model, tmp_path / "model")
    weights, config = folder / "model.safetensors", folder / "config.json"
    if fault == "absent":
        shutil.rmtree(folder)
    elif fault == "no config":
        config.unlink()
    elif fault == "no weights":
        weights.unlink()
    elif fault == "cut weights":
        weights.write_bytes(weights.read_bytes()[:1000])
    elif fault == "one weight missing":
        config.write_text(json.dumps({**json.loads(config.read_text()), "num_hidden_layers": 3}))
    else:
        config.write_text(
            json.dumps({**json.loads(config.read_text()), "final_logit_softcapping": 30.0})
        )
    with pytest.raises(UserError, match=r"^model\.path = .*; (give|choose|put) ") as error:
        LearnerGroup.build(make_config(folder, tmp_path), ranks)
    assert "\n" not in str(error.value)


def test_updates_below_the_resolution_of_bfloat16_are_kept(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    """Weights of 3.0, to which bfloat16 adds no less than 1/64, move by 1e-3 an update."""
    optimizer = {"learning_rate": 1e-3, "warmup_steps": 0, "weight_decay": 0.0}
    config = make_config(
        untied_model, tmp_path, model={"dtype": "bfloat16"}, recipe={"optimizer": optimizer}
    )
    group = LearnerGroup.build(config, ranks)
    norms = [
        weight
        for name, weight in group.learner.policy.named_weights()
        if name.endswith("norm.weight")
    ]
    start = torch.cat([weight.full_tensor().detach().clone() for weight in norms])
    rounded = start.bfloat16()
    batch = make_sequences(0)
    group.update(batch)
    after_one = torch.cat([weight.full_tensor() for weight in norms])
    moved = after_one - start
    assert (moved.abs() > 3e-4).float().mean() > 0.9
    assert torch.equal(after_one.bfloat16(), rounded), (
        "one update is too small to be seen in bfloat16"
    )
    for _ in range(19):
        group.update(batch)
    after_all = torch.cat([weight.full_tensor() for weight in norms])
    steady = (after_all - start).abs() > 0.01
    assert steady.float().mean() > 0.2
    assert (after_all.bfloat16() != rounded)[steady].all()
    group.stage(0, PolicyVersion(1, 20))
    published = torch.cat(
        [value for name, value in group.slots[0].views() if name.endswith("norm.weight")]
    )
    assert torch.equal(published, after_all.bfloat16())


def test_the_heads_precision_is_what_the_recipe_says(
    ranks: Ranks, model: Path, tmp_path: Path
) -> None:
    """A bfloat16 model's own hidden states and weights, multiplied by hand."""
    sequence = make_sequences(2)[0]
    ids = torch.tensor([[*sequence.prompt_token_ids, *sequence.token_ids]]).long()
    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16).eval()
    with torch.no_grad():
        hidden = plain.model(input_ids=ids).last_hidden_state[0]
    weight = plain.get_output_embeddings().weight.detach()
    positions, targets = torch.arange(ids.shape[1] - 1), ids[0, 1:]
    found = {}
    for precision in ("fp32", "model"):
        config = make_config(
            model, tmp_path, model={"dtype": "bfloat16"}, recipe={"lm_head": precision}
        )
        policy = LearnerGroup.build(config, ranks).learner.policy
        found[precision] = policy(ids, positions, targets)[0].detach()

    def by_hand(logits: Tensor) -> Tensor:
        return torch.log_softmax(logits[:-1].float(), dim=1).gather(1, targets[:, None])[:, 0]

    wide, narrow = by_hand(hidden.float() @ weight.float().t()), by_hand(hidden @ weight.t())
    assert (wide - narrow).abs().max() > 1e-3
    torch.testing.assert_close(found["fp32"], wide, rtol=0, atol=1e-5)
    torch.testing.assert_close(found["model"], narrow, rtol=0, atol=1e-5)
