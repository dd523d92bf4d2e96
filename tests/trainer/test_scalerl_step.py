"""The example that is a whole step: its update is the learner's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rollcast.recipe.losses.make import make_loss
from rollcast.trainer.learner.batch import denominator
from rollcast.trainer.learner.learner import Learner
from rollcast.trainer.learner.model import shard_policy
from rollcast.trainer.learner.ranks import Ranks
from testkit.module_of import load_module
from tests.trainer.tiny_models import make_config, make_sequences, write_model

EXAMPLE = Path(__file__).parents[2] / "examples" / "scalerl_step.py"
MOST_LINES = 300


@pytest.fixture(scope="module")
def example() -> Any:
    return load_module(EXAMPLE)


def test_it_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= MOST_LINES


def test_three_updates_are_the_learners(example: Any, ranks: Ranks, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model")
    recipe = make_config(path, tmp_path / "runs").recipe
    loss = make_loss(recipe.loss)
    policy = shard_policy(
        transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64),
        mesh=ranks.mesh,
        dtype=torch.float64,
        lm_head="fp32",
        temperature=1.0,
        logits_chunk_tokens=7,
        activation_checkpointing=False,
    )
    learner = Learner(policy, optimizer_settings=recipe.optimizer, loss=loss, ranks=ranks)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64)
    optimizer = example.make_optimizer(model, recipe.optimizer)
    for updates in range(3):
        sequences = make_sequences(updates + 1)
        stats = learner.update([tuple(sequences[:4]), tuple(sequences[4:])], denominator(sequences))
        norm = example.update(model, optimizer, loss, sequences, recipe.optimizer, updates)
        assert norm == pytest.approx(stats.grad_norm, rel=1e-6)
    expected = dict(policy.named_weights())
    for name, weight in model.named_parameters():
        torch.testing.assert_close(
            weight.detach(), expected[name].full_tensor().detach(), rtol=1e-5, atol=1e-6
        )
