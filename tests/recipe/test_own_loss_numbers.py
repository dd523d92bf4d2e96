"""A loss of the user's own whose numbers are not finite is named; one that only meets such numbers
is not.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rollcast.config.errors import UserError
from rollcast.config.recipe import Recipe
from rollcast.recipe.losses.loss import LossInputs, objective
from rollcast.recipe.losses.make import make_loss

NAN = float("nan")
FUNCTIONS = {
    # The result of the function -> whether it is refused, and for what
    "i.advantages * i.logprobs": None,
    "i.logprobs * float('nan')": "terms that are not finite",
    "i.logprobs / 0": "terms that are not finite",
    "i.logprobs * float('inf')": "terms that are not finite",
    "(i.logprobs - i.generator_logprobs) / i.advantages.sum()": "terms that are not finite",
    "i.logprobs.log()": "terms that are not finite",
    (
        "torch.where(i.rollout == 1, i.logprobs * float('nan'), i.logprobs)"
    ): "terms that are not finite",
    (
        "torch.where(i.weights > 0, i.logprobs, i.logprobs * float('nan'))"
    ): "terms whose gradient is not finite",
    "torch.where(i.weights > 0, i.logprobs, float('nan'))": None,
    "(-i.logprobs - 1).clamp(min=0).sqrt()": "terms whose gradient is not finite",
    (
        "torch.where(i.logprobs < 0, i.logprobs, i.logprobs.sqrt())"
    ): "terms whose gradient is not finite",
    "i.logprobs.exp()": None,
    "i.logprobs.nan_to_num()": None,
}


def inputs(logprobs: list[float]) -> LossInputs:
    size = len(logprobs)
    advantages = torch.tensor([1.0, -1.0] * (size // 2), dtype=torch.float64)
    weights = torch.ones(size, dtype=torch.float64)
    weights[-1] = 0.0
    return LossInputs(
        logprobs=torch.tensor(logprobs, dtype=torch.float64, requires_grad=True),
        generator_logprobs=torch.full((size,), -1.5, dtype=torch.float64),
        advantages=advantages,
        weights=weights,
        rollout=torch.arange(size) // 2,
    )


@pytest.mark.parametrize(("result", "refused"), FUNCTIONS.items())
def test_numbers_that_are_not_finite_are_the_functions(
    tmp_path: Path, result: str, refused: str | None
) -> None:
    (tmp_path / "mine.py").write_text(f"import torch\n\n\ndef loss(i):\n    return {result}\n")
    setting = {"kind": "python", "function": f"{tmp_path}/mine.py:loss"}
    loss = make_loss(Recipe.model_validate({"loss": setting}).loss)
    given = inputs([-1.0, -2.0, -0.5, -3.0])
    if refused is None:
        objective(loss, given)[0].backward()
        assert given.logprobs.grad is not None
        assert given.logprobs.grad.isfinite().all()
        return
    with pytest.raises(
        UserError,
        match=rf"^recipe.loss .*mine.py:loss: returned '{refused}', needs .*mine.py, line 4",
    ):
        objective(loss, given)[0].backward()


def test_a_model_that_is_broken_is_no_error_of_the_function(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loss(i):\n    return i.advantages * i.logprobs\n")
    setting = {"kind": "python", "function": f"{tmp_path}/mine.py:loss"}
    loss = make_loss(Recipe.model_validate({"loss": setting}).loss)
    assert objective(loss, inputs([-1.0, NAN, -0.5, -3.0]))[0].isnan()
