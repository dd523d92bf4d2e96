"""Tests of what differs between architectures, against the model's own code in Transformers: of the
`folder` of the module that imports them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor

from rollcast.trainer.learner.device_batch import pad_micro_batch
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from tests.trainer.slow_model import slow_model
from tests.trainer.tiny_models import make_config, make_sequences

MIXERS = ("self_attn", "linear_attn", "mixer")
"""What of a layer computes tokens from those before them."""


def test_logprobs_equal_the_models_own(ranks: Ranks, folder: Path, tmp_path: Path) -> None:
    policy = LearnerGroup.build(make_config(folder, tmp_path), ranks).learner.policy
    sequences = make_sequences(3)
    batch = pad_micro_batch(tuple(sequences), ranks.device)
    logprobs, _ = policy(batch.input_ids, batch.positions, batch.targets)
    plain, expected = slow_model(folder), []
    for sequence in sequences:
        ids = torch.tensor([[*sequence.prompt_token_ids, *sequence.token_ids]]).long()
        with torch.no_grad():
            rows = torch.log_softmax(plain(input_ids=ids).logits[0].double(), dim=1)
        first = len(sequence.prompt_token_ids)
        expected += [
            rows[first + at - 1, int(token)]
            for at, token in enumerate(sequence.token_ids)
            if sequence.loss_mask[at]
        ]
    torch.testing.assert_close(logprobs.double(), torch.stack(expected), rtol=0, atol=2e-5)


def test_gradients_equal_the_models_own_with_and_without_activation_checkpointing(
    ranks: Ranks, folder: Path, tmp_path: Path
) -> None:
    batch = pad_micro_batch(tuple(make_sequences(3)), ranks.device)
    upstream = torch.linspace(-1, 1, len(batch.targets))

    def gradients(activation_checkpointing: bool) -> tuple[dict[str, Tensor], int]:
        trainer = {"activation_checkpointing": activation_checkpointing}
        policy = LearnerGroup.build(
            make_config(folder, tmp_path, trainer=trainer), ranks
        ).learner.policy
        passes: Counter[str] = Counter()
        first = next(
            module
            for name, module in policy.causal_lm.model.layers[0].named_children()
            if name in MIXERS
        )
        first.register_forward_pre_hook(lambda *_: passes.update(["forward"]))
        policy(batch.input_ids, batch.positions, batch.targets)[0].mul(upstream).sum().backward()
        sharded: dict[str, Any] = {name: weight.grad for name, weight in policy.named_weights()}
        found = {
            name: gradient.full_tensor()
            for name, gradient in sharded.items()
            if gradient is not None
        }
        return found, passes["forward"]

    plain = slow_model(folder)
    rows = torch.log_softmax(
        plain(input_ids=batch.input_ids).logits.flatten(0, 1)[batch.positions], dim=1
    )
    rows.gather(1, batch.targets[:, None])[:, 0].mul(upstream).sum().backward()
    expected = {name: weight.grad for name, weight in plain.named_parameters()}

    (kept, once), (computed_again, twice) = gradients(False), gradients(True)
    assert (once, twice) == (1, 2)
    assert kept.keys() == computed_again.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient is not None
        assert gradient.any(), name
        torch.testing.assert_close(
            kept[name], gradient, rtol=1e-3, atol=1e-4 * float(gradient.abs().max())
        )
        assert torch.equal(computed_again[name], kept[name]), name


def test_every_decoder_layer_is_an_fsdp_unit_of_its_own(
    ranks: Ranks, folder: Path, tmp_path: Path
) -> None:
    policy = LearnerGroup.build(make_config(folder, tmp_path), ranks).learner.policy
    units = Counter(
        type(module).__name__
        for module in policy.modules()
        if type(module).__name__.startswith("FSDP")
    )
    tied = policy.causal_lm.config.tie_word_embeddings
    (layer_class,) = {
        type(layer).__name__.removeprefix("FSDP") for layer in policy.causal_lm.model.layers
    }
    assert units == Counter(
        {f"FSDP{layer_class}": policy.causal_lm.config.num_hidden_layers, "FSDPPolicy": 1}
    ) + Counter({} if tied else {"FSDPHead": 1})


def test_an_export_is_stored_as_models_of_its_kind_are(
    ranks: Ranks, folder: Path, tmp_path: Path
) -> None:
    group = LearnerGroup.build(make_config(folder, tmp_path), ranks)
    group.update(make_sequences(0))
    group.export(tmp_path / "export")
    assert stored_names(tmp_path / "export") == stored_names(folder)
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "export", dtype=torch.float32
    )
    held = dict(exported.named_parameters())
    trained = {name: weight.full_tensor() for name, weight in group.learner.policy.named_weights()}
    assert held.keys() == trained.keys()
    assert all(torch.equal(held[name], trained[name]) for name in trained)


def stored_names(folder: Path) -> dict[str, list[int]]:
    return {
        name: list(tensor.shape) for name, tensor in load_file(folder / "model.safetensors").items()
    }
