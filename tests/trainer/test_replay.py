"""A run records its steps; a replay finds them again, and names the part that a planted fault is
in.

The generator's log-probs are those of the oracle `testkit.replay`, whose code the replay does not
share.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from rollcast.config.errors import UserError
from rollcast.recorded.origin import is_own_record
from rollcast.recorded.recorded_index import RecordedIndex, find_step
from rollcast.recorded.step_bundle import StepBundle, load_step
from rollcast.rollouts.records import GradingStatus, KvMark, RolloutGroup, VersionSpan, loss_mask
from rollcast.trainer.learner import batch as learner_batch
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.whole_weights import array_digest
from rollcast.trainer.replay.comparison import RecordCheck, ReplayReport
from rollcast.trainer.replay.program import replay
from rollcast.trainer.replay.recorded_batch import RecordedBatch
from testkit.system.audit import read_lines
from testkit.tiny_model import make_architecture, make_tiny_model
from testkit.trainer.recorded_run import make_recorded_run, recorded_config
from tests.trainer.slow_update import slow_loss

Make = Callable[..., Path]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    make_tiny_model(folder, hidden=32, max_length=128)
    return folder


@pytest.fixture
def make(tiny: Path, tmp_path: Path, ranks: Ranks) -> Make:
    """Makes a recorded run; returns its folder."""

    def make_run(
        generator: dict[str, Any] | None = None, folder: Path = tiny, **sections: Any
    ) -> Path:
        config = recorded_config(folder, tmp_path, **sections)
        make_recorded_run(config, ranks, **(generator or {}))
        return config.run_folder

    return make_run


def step(run: Path, number: str = "3") -> StepBundle:
    return load_step(find_step(run, number))


def differing(report: ReplayReport) -> list[RecordCheck]:
    return [item for item in report.comparisons if item.state == "disagrees"]


KINDS: dict[str, dict[str, Any]] = {
    "answers": {"recipe": {"kl": {"coefficient": 0.1}, "entropy_bonus": 0.01}},
    "episodes": {
        "generator": {"is_episodic": True},
        "recipe": {"max_completion_tokens": 60, "episodes": {"credit": {"kind": "turn"}}},
    },
    "lora": {"model": {"lora": {"rank": 4, "alpha": 8}}},
    "experts": {"generator": {"records_experts": True}, "recipe": {"router_replay": True}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_step_is_found_again(
    make: Make, ranks: Ranks, tmp_path: Path, kind: str
) -> None:
    settings = dict(KINDS[kind])
    if kind == "experts":
        make_architecture(tmp_path / "experts", "qwen3_moe", max_length=128)
        settings["folder"] = tmp_path / "experts"
    run = make(**settings)
    for line in read_lines(run / "steps.jsonl"):
        bundle = step(run, str(line["step"]))
        assert bundle.figures["loss"] == line["loss"]
        report = replay(bundle, ranks)
        assert not differing(report), report.in_words()
        for name in ("loss", "gradient norm", "loss of its own weights"):
            pair = report.figures[name]
            assert pair["replayed"] == pytest.approx(pair["recorded"], rel=1e-6), name
        gaps = {
            item.check: item.largest for item in report.comparisons if "log-probs" in item.check
        }
        assert len(gaps) == 2
        assert all(gap is not None and gap < 1e-4 for gap in gaps.values()), gaps
    assert all(item.component != "grader" or item.num_compared == 6 for item in report.comparisons)
    if kind == "lora":
        weights, _ = bundle.load_weights(bundle.version)
        assert all("lora" in name for name in weights), "adapters alone"


def test_the_record_is_what_plain_code_computes(make: Make, tiny: Path, ranks: Ranks) -> None:
    """Loss, gradient norm and the trainer's log-probs, of Hugging Face's own model."""
    from transformers import AutoModelForCausalLM

    bundle = step(make(recipe={"kl": {"coefficient": 0.1, "estimator": "k1"}}))
    model, reference = (
        AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32) for _ in range(2)
    )
    weights, _ = bundle.load_weights(bundle.version)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})
    batch = RecordedBatch(bundle)
    loss, _ = slow_loss(model, reference, batch.sequences, kl=0.1, entropy=0.0)
    loss.backward()
    norm = math.sqrt(
        sum(
            float(weight.grad.double().square().sum())
            for weight in model.parameters()
            if weight.grad is not None
        )
    )
    assert bundle.figures["loss"] == pytest.approx(loss.item(), rel=1e-4)
    assert bundle.figures["grad_norm"] == pytest.approx(norm, rel=1e-4)
    for recorded, sequence in zip(bundle.sequences, batch.sequences, strict=True):
        prompt = len(sequence.prompt_token_ids)
        ids = torch.tensor([[*sequence.prompt_token_ids.tolist(), *sequence.token_ids.tolist()]])
        with torch.no_grad():
            rows = torch.log_softmax(model(input_ids=ids).logits[0], 1)
        positions = prompt + np.flatnonzero(sequence.loss_mask)
        plain = rows[positions - 1, ids[0, positions]]
        assert recorded.logprobs is not None
        assert np.abs(plain.numpy() - recorded.logprobs).max() < 1e-4


def test_recording_changes_nothing_and_off_costs_nothing(
    tiny: Path, tmp_path: Path, ranks: Ranks
) -> None:
    losses = []
    for name in ("on", "off"):
        config = recorded_config(tiny, tmp_path / name)
        if name == "off":
            config = config.model_copy(update={"record": type(config.record)()})
        controller = make_recorded_run(config, ranks)
        losses.append([line["loss"] for line in read_lines(config.run_folder / "steps.jsonl")])
        if name == "off":
            assert controller._learners.learner.tape is None
            assert not (config.run_folder / "recorded").exists()
    assert losses[0] == losses[1]


def reward(group: RolloutGroup) -> None:
    rollout = group.rollouts[0]
    rollout.reward = 1 - rollout.reward
    rollout.grading_status = GradingStatus.OK if rollout.reward else GradingStatus.WRONG


def stale_label(group: RolloutGroup) -> None:
    for rollout in group.rollouts:
        if len(rollout.version_spans) == 2:
            first, second = rollout.version_spans
            (mark,) = rollout.kv_marks
            rollout.version_spans = (first, VersionSpan(first.version, second.start, second.end))
            rollout.kv_marks = (KvMark(mark.position, mark.num_kept, first.version),)


def damage(weights: dict[str, Any]) -> None:
    name = next(name for name in weights if "q_proj" in name)
    weights[name] = weights[name].clone()
    weights[name].view(-1)[5] += 3.0


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "reward": ({"spoil": reward}, "grader", "recorded 1, graded again 0|recorded 0, graded"),
    "stale label": ({"spoil": stale_label}, "generator", r"says 1\.0, sampled with 1\.1"),
    "temperature": ({"temperature": 0.7}, "generator", r"sampled with 0\.7, not with 1"),
    "weight": ({"damage": damage}, "generator", "no kept version and no temperature"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_attributed_to_its_part(make: Make, ranks: Ranks, fault: str) -> None:
    generator, part, sentence = FAULTS[fault]
    report = replay(step(make(generator)), ranks)
    assert report.disagreeing == (part,), report.in_words()
    [comparison] = differing(report)
    assert re.search(sentence, comparison.reason), comparison
    assert comparison.location is not None
    assert "«" in comparison.location.text, "the token is shown in its text"


def test_a_reward_that_only_the_record_has_is_the_graders(make: Make, ranks: Ranks) -> None:
    """The advantages follow from the right one."""
    bundle = step(make())
    trained = bundle.sequences[0]
    rollout = bundle.groups[trained.group].rollouts[trained.rollout]
    rollout.reward = 1 - rollout.reward
    assert replay(bundle, ranks).disagreeing == ("grader",)


def test_a_mask_that_is_not_that_of_the_legs_is_the_generators(make: Make, ranks: Ranks) -> None:
    """In a run the trainer refuses such a group: the bundle is changed."""
    bundle = step(make({"is_episodic": True}, recipe={"max_completion_tokens": 60}))
    recorded = bundle.sequences[0]
    rollout = bundle.groups[recorded.group].rollouts[recorded.rollout]
    rollout.loss_masked = tuple((start + 1, end + 1) for start, end in rollout.loss_masked)
    report = replay(bundle, ranks)
    assert report.disagreeing == ("generator",), report.in_words()
    [comparison] = differing(report)
    assert comparison.reason == "the tokens without loss are not those that were forced or given"


def test_a_trainer_that_shifts_its_masks_is_named(
    make: Make, ranks: Ranks, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(learner_batch, "loss_mask", lambda sequence: np.roll(loss_mask(sequence), 1))
        run = make({"is_episodic": True}, recipe={"max_completion_tokens": 60})
    report = replay(step(run), ranks)
    assert report.disagreeing == ("trainer",)
    assert "loss masks" in {item.check for item in differing(report)}


def test_a_mask_that_only_the_record_has_is_the_trainers(make: Make, ranks: Ranks) -> None:
    for change in (lambda mask: np.roll(mask, 1), lambda mask: np.r_[~mask[:1], mask[1:]]):
        bundle = step(make({"is_episodic": True}, recipe={"max_completion_tokens": 60}))
        first, *others = bundle.sequences
        changed = replace(first, loss_mask=change(first.loss_mask))
        report = replay(replace(bundle, sequences=[changed, *others]), ranks)
        assert report.disagreeing == ("trainer",), report.in_words()


def test_weights_that_change_between_two_steps_are_named(make: Make, ranks: Ranks) -> None:
    def damage_weight(learners: Any, version_step: int) -> None:
        if version_step == 2:
            _, weight = next(iter(learners.learner.policy.trained_weights()))
            with torch.no_grad():
                weight.to_local().view(-1)[0] += 1.0

    run = make({"before_step": damage_weight})
    report = replay(step(run, "2"), ranks)
    [comparison] = differing(report)
    assert (comparison.component, comparison.check) == ("trainer", "weights after the step")
    assert "changed between this step and the next" in comparison.reason


def test_a_damaged_file_of_weights_is_named_and_not_blamed_on_others(
    make: Make, ranks: Ranks
) -> None:
    bundle = step(make())
    file = bundle.weights_file(bundle.version)
    weights, checksums = load_file(file), bundle.load_weights(bundle.version)[1]
    name = next(iter(weights))
    weights[name] = weights[name].copy()
    weights[name].reshape(-1)[0] += 1
    save_file(weights, file, checksums)
    report = replay(bundle, ranks)
    [comparison] = differing(report)
    assert comparison.check == "kept weights"
    assert f"weights {bundle.version}: {name}" in comparison.reason
    left_out = {item.check for item in report.comparisons if item.state == "not checked"}
    assert {"gradient norm", "log-probs of its own weights"} <= left_out


def test_without_weights_the_rest_is_checked_and_what_is_not_is_said(
    make: Make, ranks: Ranks
) -> None:
    report = replay(step(make(record={"weights": "none"})), ranks)
    assert not differing(report)
    assert report.figures["loss"]["replayed"] == report.figures["loss"]["recorded"]
    left_out = {
        item.check: item.reason for item in report.comparisons if item.state == "not checked"
    }
    assert left_out["gradient norm"] == "no weights were kept (record.weights: none)"


def test_another_recipe_is_computed_of_the_same_step(
    make: Make, ranks: Ranks, tmp_path: Path
) -> None:
    bundle = step(make())
    other = tmp_path / "other.py"
    other.write_text("def twice(inputs):\n    return 2 * inputs.advantages * inputs.logprobs\n")
    report = replay(bundle, ranks, loss=f"{other}:twice", settings=["recipe.aggregation=token"])
    answer = report.counterfactual
    assert answer is not None
    batch = RecordedBatch(bundle)
    tokens = [sequence.loss_mask.sum() for sequence in batch.sequences]
    terms = [
        -2 * sequence.advantage * float(recorded.logprobs.astype(np.float64).sum())
        for sequence, recorded in zip(batch.sequences, bundle.sequences, strict=True)
        if recorded.logprobs is not None
    ]
    figures = answer["figures"]
    assert figures["loss"]["recorded"] == pytest.approx(bundle.figures["loss"], rel=1e-6)
    assert figures["loss"]["other"] == pytest.approx(sum(terms) / sum(tokens), rel=1e-4)
    changes = answer["probability_changes"]
    assert changes["tokens"] == sum(tokens)
    assert any(row["recorded_recipe"] != row["other_recipe"] for row in changes["each"])
    json.dumps(report.as_json())
    for wrong, sentence in (
        ("recipe.los.kind=gspo", r"recipe\.los is not a setting; did you mean recipe\.loss"),
        ("trainer.threads=2", r"--set trainer\.threads=2: needs recipe\.NAME=VALUE"),
        ("recipe.aggregation=words", r"recipe\.aggregation"),
    ):
        with pytest.raises(UserError, match=sentence):
            replay(bundle, ranks, settings=[wrong])


OWN_CODE = """from pathlib import Path

CALLS = Path(__file__).with_name("calls")


def note(name):
    with CALLS.open("a") as file:
        file.write(name + " ")


def advantage(batch):
    note("advantage")
    return batch.rewards - batch.rewards.mean()


def loss(inputs):
    note("loss")
    return inputs.advantages * inputs.logprobs


def grade(completion, row):
    note("grade")
    return 0.0
"""


def test_code_that_a_record_from_elsewhere_names_runs_if_it_is_trusted(
    make: Make, ranks: Ranks, tmp_path: Path
) -> None:
    code = tmp_path / "own.py"
    code.write_text(OWN_CODE)
    calls = tmp_path / "calls"
    functions = {
        name: {"kind": "python", "function": f"{code}:{name}"} for name in ("advantage", "loss")
    }
    run = make(recipe=functions)

    calls.unlink()
    own = replay(step(run), ranks)
    assert not differing(own), own.in_words()
    assert set(calls.read_text().split()) == {"advantage", "loss"}, "one's own needs no option"

    calls.unlink()
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    bundle = step(copy)
    bundle.tasks[:] = [replace(task, verifier=f"{code}:grade") for task in bundle.tasks]
    report = replay(bundle, ranks)
    with pytest.raises(UserError, match=r"recipe\.loss .*own\.py:loss: .* give --trust"):
        replay(bundle, ranks, settings=["recipe.advantage=null"])
    digest = sha256(code.read_bytes()).hexdigest()
    with pytest.raises(UserError, match=r"recipe\.advantage .*:advantage: .* give --trust"):
        replay(bundle, ranks, settings=[f"recipe.advantage.digest={digest}"])
    assert not calls.exists(), "nothing was called"
    assert report.disagreeing == ()
    reasons = {item.check: item.reason for item in report.comparisons if item.state != "agrees"}
    del reasons["weights after the step"]
    assert reasons.keys() >= {"rewards", "advantages and token weights", "loss", "gradient norm"}
    assert all("if you trust it, give --trust" in reason for reason in reasons.values()), reasons
    agreeing = {item.check for item in report.comparisons if item.state == "agrees"}
    assert {"log-probs of its versions", "kept weights", "loss masks"} <= agreeing

    trusted = replay(step(copy), ranks, trust=True)
    assert not differing(trusted), trusted.in_words()
    assert set(calls.read_text().split()) == {"advantage", "loss"}

    bundle.settings["model"]["trust_remote_code"] = True
    assert RecordedBatch(bundle).config.model.trust_remote_code
    batch = RecordedBatch(bundle, is_trusted=False)
    assert not batch.config.model.trust_remote_code
    assert batch.missing_model.startswith("model.trust_remote_code: the record names code")

    os.chmod(run / "recorded" / "step-3" / "step.json", 0o666)
    assert not is_own_record(step(run)), "anybody may have written it"


def test_a_group_is_shown_token_by_token(make: Make, ranks: Ranks) -> None:
    bundle = step(make())
    group = bundle.groups[0]
    rows = replay(bundle, ranks, group=group.sequence).tokens
    assert len(rows) == sum(len(rollout.token_ids) for rollout in group.rollouts)
    assert all(
        row["generator"] == pytest.approx(row["generator_replayed"], abs=1e-4) for row in rows
    )
    with pytest.raises(UserError, match="--group 999: is not in this step; choose among"):
        replay(bundle, ranks, group=999)


def test_a_bundle_that_is_none_or_damaged_is_one_sentence(make: Make, tmp_path: Path) -> None:
    run = make()
    bundle = step(run)
    assert all(
        array_digest(array) == bundle.digests_before[name]
        for name, array in bundle.load_weights(bundle.version)[0].items()
    )
    with pytest.raises(UserError, match="give the folder of a recorded step"):
        load_step(tmp_path / "nothing")
    with pytest.raises(UserError, match="--step 9: is not recorded; choose among 1, 2, 3"):
        find_step(run, "9")
    with pytest.raises(UserError, match=r"no step is recorded; set record\.every_steps"):
        find_step(tmp_path, "9")
    record = bundle.path / "step.json"
    content = json.loads(record.read_text())
    content["groups"][0]["rollouts"][0]["token_ids"] = {"array": "no.such"}
    record.write_text(json.dumps(content))
    with pytest.raises(UserError, match="is damaged"):
        load_step(bundle.path)
    arrays = bundle.path / "arrays.safetensors"
    arrays.write_bytes(arrays.read_bytes()[:100])
    with pytest.raises(UserError, match="is damaged"):
        load_step(bundle.path)
    assert [entry.step for entry in RecordedIndex.read(run).steps] == [1, 2, 3]


def test_a_recipe_that_needs_more_than_the_record_is_said(make: Make, ranks: Ranks) -> None:
    bundle = step(make(record={"weights": "none"}))
    for setting in ("recipe.kl.coefficient=0.1", "recipe.zero_variance_filter=false"):
        answer = replay(bundle, ranks, settings=[setting]).counterfactual
        assert answer is not None
        assert any("which are not recorded" in reason for reason in answer["not_checked"]), setting
    answer = replay(bundle, ranks, settings=["recipe.loss.ratio_max=0.5"]).counterfactual
    assert answer is not None
    pair = answer["figures"]["ratios_clipped_high"]
    assert pair["other"] > pair["recorded"], "more ratios are cut"
