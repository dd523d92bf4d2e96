"""Two processes over gloo against one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.forked_programs import ForkedPrograms
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.tiny_models import make_config, make_sequences, write_model
from tests.trainer.two_ranks import UPDATES, distance, ratio_statistics, taught_by, whole_weights


@pytest.fixture(scope="module")
def by_tying(
    trainers: ForkedPrograms, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, dict[str, Any]]]:
    """The model with and without tied matrices, and what the same two ranks saw of each."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("untied", "tied")}
    models = {
        name: write_model(folder / "model", tied=name == "tied") for name, folder in folders.items()
    }
    arguments = [path for name in folders for path in (models[name], folders[name])]
    run_ranks(trainers, folders["tied"], "tests.trainer.two_ranks", *arguments)
    return {
        name: (models[name], torch.load(folder / "results.pt")) for name, folder in folders.items()
    }


@pytest.fixture(params=["untied", "tied"])
def tying(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(by_tying: dict[str, tuple[Path, dict[str, Any]]], tying: str) -> Path:
    return by_tying[tying][0]


@pytest.fixture
def two_ranks(by_tying: dict[str, tuple[Path, dict[str, Any]]], tying: str) -> dict[str, Any]:
    return by_tying[tying][1]


def test_gathered_weights_are_the_models_bit_for_bit(
    model: Path, two_ranks: dict[str, Any]
) -> None:
    expected = dict(
        transformers.AutoModelForCausalLM.from_pretrained(
            model, dtype=torch.float32
        ).named_parameters()
    )
    assert two_ranks["initial"].keys() == expected.keys()
    assert all(torch.equal(two_ranks["initial"][name], expected[name]) for name in expected)


def test_two_ranks_train_like_one(
    ranks: Ranks, model: Path, tmp_path: Path, two_ranks: dict[str, Any]
) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path, recipe=taught_by(model)), ranks)
    stats = [group.update(make_sequences(step)) for step in range(UPDATES)]
    # A loss is a sum that nearly cancels.
    assert two_ranks["loss"] == pytest.approx([s.loss for s in stats], rel=1e-5, abs=1e-6)
    assert two_ranks["kl"] == pytest.approx([s.kl for s in stats], rel=1e-4, abs=1e-9)
    assert two_ranks["teacher_kl"] == pytest.approx([s.teacher_kl for s in stats], rel=1e-5)
    assert two_ranks["grad_norm"] == pytest.approx([s.grad_norm for s in stats], rel=1e-5)
    assert two_ranks["tokens"] == [s.tokens for s in stats]
    for ratios, expected in zip(two_ranks["ratios"], stats, strict=True):
        assert ratios == pytest.approx(ratio_statistics(expected), rel=1e-5)
    for found, expected in zip(two_ranks["gap"], stats, strict=True):
        assert found == pytest.approx(
            (expected.logprob_gap_mean, expected.logprob_gap_max, expected.entropy), rel=1e-5
        )
    assert distance(two_ranks["weights"], whole_weights(group)) < 1e-5


def test_the_gradient_is_the_same_to_1e5(
    ranks: Ranks, model: Path, tmp_path: Path, two_ranks: dict[str, Any]
) -> None:
    """AdamW's first moment of the first update is (1 - beta_1) times the clipped gradient."""

    def first_moment(group: LearnerGroup) -> dict[str, torch.Tensor]:
        moments = group.learner.optimizer.state
        return {
            name: moments[weight]["exp_avg"].full_tensor()
            for name, weight in group.learner.policy.named_weights()
        }

    one = LearnerGroup.build(make_config(model, tmp_path, recipe=taught_by(model)), ranks)
    one.update(make_sequences(0))
    two = LearnerGroup.build(make_config(model, tmp_path, recipe=taught_by(model)), ranks)
    two.restore(Path(two_ranks["first_checkpoint"]))
    assert distance(first_moment(two), first_moment(one)) < 1e-5


def test_a_rank_without_sequences_takes_part(two_ranks: dict[str, Any]) -> None:
    assert two_ranks["single"][1] == 1


def test_a_restored_group_repeats_itself_bit_for_bit(two_ranks: dict[str, Any]) -> None:
    assert two_ranks["restored"] == {"step": UPDATES}
    assert two_ranks["single"][0] == two_ranks["single"][2]
    assert all(
        torch.equal(two_ranks["resumed"][name], value)
        for name, value in two_ranks["further"].items()
    )


def test_one_rank_continues_the_checkpoint_of_two(
    ranks: Ranks, model: Path, tmp_path: Path, two_ranks: dict[str, Any]
) -> None:
    group = LearnerGroup.build(make_config(model, tmp_path, recipe=taught_by(model)), ranks)
    assert group.restore(Path(two_ranks["checkpoint"])) == {"step": UPDATES}
    assert distance(whole_weights(group), two_ranks["weights"]) == 0.0
    stats = group.update(make_sequences(7, num_groups=1)[:1])
    assert stats.loss == pytest.approx(two_ranks["single"][0], rel=1e-5)
    assert distance(whole_weights(group), two_ranks["further"]) < 1e-5


def test_padded_weights_stay_in_the_memory_that_a_checkpoint_was_copied_from(model: Path) -> None:
    """The copies are kept by it: other memory would take other copies, the first time in the middle
    of the run.
    """
    before, after = torch.load(model.with_name("places.pt"))
    assert before == after
    assert any(held > rows for _, held, rows in before.values()), (
        "no rows of this rank are fewer than the other's"
    )


def test_two_ranks_export_what_they_hold(two_ranks: dict[str, Any]) -> None:
    exported = transformers.AutoModelForCausalLM.from_pretrained(
        Path(two_ranks["checkpoint"]).parents[2] / "export"
    )
    found = {name: parameter.detach() for name, parameter in exported.named_parameters()}
    assert distance(found, two_ranks["resumed"]) == 0.0
