"""A loss of the user's own in the learner: CISPO written again trains as the shipped one; an error
is one sentence.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rollcast.config.errors import UserError
from rollcast.config.out_of_memory import OutOfMemory
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.step_sums import UpdateStats
from testkit.forked_programs import ForkedPrograms
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.tiny_models import make_config, make_sequences

MINE = """
def cispo(inputs):
    ratio = (inputs.logprobs - inputs.generator_logprobs).detach().exp().clamp(max=5.0)
    return ratio * inputs.advantages * inputs.logprobs


def fails_later(inputs):
    if len(inputs.logprobs) > 6:
        raise RuntimeError("many tokens")
    return inputs.logprobs


def hungry(inputs):
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB.")


def fails_on_one_rank(inputs):
    import os
    if os.environ["RANK"] == "1":
        raise RuntimeError("on one rank alone")
    return inputs.logprobs * inputs.advantages
"""


def trained(
    ranks: Ranks, model: Path, folder: Path, loss: dict[str, str]
) -> tuple[UpdateStats, torch.Tensor]:
    group = LearnerGroup.build(make_config(model, folder, recipe={"loss": loss}), ranks)
    stats = group.update(make_sequences(1))
    weights = [weight.full_tensor().flatten() for weight in group.learner.weights]
    return stats, torch.cat(weights)


def test_cispo_of_ones_own_trains_as_the_shipped_one(
    ranks: Ranks, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    own = {"kind": "python", "function": f"{tmp_path}/mine.py:cispo"}
    stats, weights = trained(ranks, model, tmp_path, own)
    expected_stats, expected = trained(ranks, model, tmp_path, {"kind": "cispo"})
    assert stats.loss == pytest.approx(expected_stats.loss, rel=1e-6)
    torch.testing.assert_close(weights, expected, rtol=1e-6, atol=1e-7)
    assert (stats.ratios_clipped_low, stats.ratios_clipped_high) == (None, None), (
        "what the function cuts is not known"
    )
    assert expected_stats.ratios_clipped_high is not None


def test_an_error_in_an_update_names_setting_function_and_line(
    ranks: Ranks, model: Path, tmp_path: Path
) -> None:
    (tmp_path / "later.py").write_text(MINE)
    own = {"kind": "python", "function": f"{tmp_path}/later.py:fails_later"}
    with pytest.raises(
        UserError,
        match=r"^recipe.loss .*:fails_later: RuntimeError: many tokens \(.*later.py, line 9\)$",
    ):
        trained(ranks, model, tmp_path, own)


def test_refused_memory_is_no_error_of_the_function(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "hungry.py").write_text(MINE)
    own = {"kind": "python", "function": f"{tmp_path}/hungry.py:hungry"}
    with pytest.raises(
        OutOfMemory,
        match=(
            r"^out of GPU memory: an update does not fit \(it asked for 2.50 GiB more\); lower "
            r"trainer"
        ),
    ):
        trained(ranks, untied_model, tmp_path, own)


def test_an_error_on_one_rank_alone_ends_all_ranks(
    trainers: ForkedPrograms, untied_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "alone.py").write_text(MINE)
    function = f"{tmp_path}/alone.py:fails_on_one_rank"
    run_ranks(trainers, tmp_path, "tests.trainer.own_loss_ranks", untied_model, tmp_path, function)
