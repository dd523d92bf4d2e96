"""LoRA in the learner, against PEFT's own model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
import transformers
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollcast.config.custom_function import CustomFunction
from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.trainer.learner.adapter_export import AdapterExport
from rollcast.trainer.learner.checkpoint import storage_at
from rollcast.trainer.learner.export import CUSTOM_FUNCTIONS
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from testkit.forked_programs import ForkedPrograms
from testkit.tiny_model import make_architecture, make_whole_llama4
from tests.trainer.gloo_ranks import run_ranks
from tests.trainer.lora_groups import LORA, build
from tests.trainer.lora_ranks import built, drive
from tests.trainer.slow_update import slow_loss
from tests.trainer.tiny_models import VOCAB, make_config, make_sequences, write_model
from tests.trainer.two_ranks import distance, whole_weights

if TYPE_CHECKING:  # a test that needs it imports it: that takes seconds
    from peft import PeftModel

KL, ENTROPY = 0.3, 0.1


def pefts(model: Path, group: LearnerGroup, lora: Mapping[str, Any] = LORA) -> PeftModel:
    """PEFT's own model with the adapters that the learner has now."""
    from peft import LoraConfig, get_peft_model

    plain = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    config = LoraConfig(r=lora["rank"], lora_alpha=lora["alpha"], target_modules="all-linear")
    made = get_peft_model(plain, config)
    own: dict[str, Any] = dict(made.named_parameters())
    with torch.no_grad():
        for name, weight in group.learner.policy.trained_weights():
            own[f"base_model.model.{name}"].copy_(weight.full_tensor())
    return made


def shake(group: LearnerGroup) -> None:
    """Leave the start, where B is 0."""
    for module in group.learner.policy.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    numbers = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, weight in group.learner.policy.trained_weights():
            local = weight.to_local()
            local.add_(0.2 * torch.randn(local.shape, generator=numbers))


def test_an_update_is_that_of_pefts_own_model(ranks: Ranks, model: Path, tmp_path: Path) -> None:
    """Loss, KL to the base and gradients. The reference is the base with the adapters off."""
    group = build(
        ranks, model, tmp_path, kl={"coefficient": KL, "estimator": "k1"}, entropy_bonus=ENTROPY
    )
    learner = group.learner
    assert learner.reference is not None
    assert learner.reference.policy is learner.policy, "a second copy"
    shake(group)
    plain = pefts(model, group)
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    frozen = [
        weight.full_tensor().clone()
        for _, weight in learner.policy.named_weights()
        if not weight.requires_grad
    ]
    sequences = make_sequences(5)
    loss, distance = slow_loss(plain, base, sequences, kl=KL, entropy=ENTROPY)
    loss.backward()
    stats = group.update(sequences)
    assert stats.loss == pytest.approx(loss.item(), rel=1e-4)
    assert stats.kl == pytest.approx(distance, rel=1e-4)
    gradients = {
        name: weight.grad for name, weight in plain.named_parameters() if weight.requires_grad
    }
    trained = list(learner.policy.trained_weights())
    assert len(trained) == len(gradients) == 2 * 7 * 2
    for name, weight in trained:
        moment = learner.optimizer.state[weight]["exp_avg"].full_tensor() / (
            1 - learner.optimizer_settings.betas[0]
        )
        torch.testing.assert_close(
            moment, gradients[f"base_model.model.{name}"], rtol=1e-3, atol=1e-5
        )
    after = [
        weight.full_tensor()
        for _, weight in learner.policy.named_weights()
        if not weight.requires_grad
    ]
    assert all(torch.equal(one, other) for one, other in zip(frozen, after, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_base_is_in_the_models_dtype_and_only_adapters_are_masters(
    ranks: Ranks, model: Path, tmp_path: Path, dtype: str
) -> None:
    group = build(ranks, model, tmp_path, dtype=dtype)
    stored = transformers.AutoModelForCausalLM.from_pretrained(
        model, dtype=getattr(torch, dtype)
    ).state_dict()
    trained = dict(group.learner.policy.trained_weights())
    assert all(weight.dtype == torch.float32 for weight in trained.values())
    for name, weight in group.learner.policy.named_weights():
        assert isinstance(weight, DTensor)
        if name not in trained:
            assert torch.equal(weight.full_tensor(), stored[name.replace(".base_layer", "")])
    assert {id(weight) for weight in group.learner.weights} == {
        id(weight) for weight in trained.values()
    }
    published = sum(spec.num_bytes for spec in group.specs)
    assert (
        published
        == sum(weight.numel() for weight in trained.values()) * getattr(torch, dtype).itemsize
    )
    before = [weight.full_tensor().clone() for weight in trained.values()]
    first = group.update(make_sequences(5))
    assert first.applied
    assert any(
        not torch.equal(old, new.full_tensor())
        for old, new in zip(before, trained.values(), strict=True)
    )


def test_another_seed_draws_other_adapters(
    ranks: Ranks, untied_model: Path, tmp_path: Path
) -> None:
    def drawn(seed: int) -> torch.Tensor:
        config = make_config(untied_model, tmp_path, model={"lora": LORA}).model_copy(
            update={"seed": seed}
        )
        policy = LearnerGroup.build(config, ranks).learner.policy
        return next(
            weight.full_tensor() for name, weight in policy.trained_weights() if "lora_A" in name
        )

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize(
    ("kind", "targets", "sentence"),
    [
        (
            "qwen3_moe",
            "all-linear",
            r"has experts, which get no adapters .*; give model\.lora\.targets its attention",
        ),
        (
            "qwen3_moe",
            ["q_proj", "experts"],
            r"has experts, which get no adapters \(model\.lora\.targets: experts\)",
        ),
        (
            "mixtral",
            ["down_proj"],
            r"has experts, which get no adapters \(model\.lora\.targets: down_proj\)",
        ),
        (
            "qwen3_moe",
            ["gate_proj", "up_proj"],
            r"has experts, .* gate_proj\); give .*, \[q_proj, k_proj, v_proj, o_proj\]",
        ),
        (
            "glm4_moe",
            ["o_proj", "gate_proj"],
            r"has experts, which get no adapters \(model\.lora\.targets: gate_proj\)",
        ),
        (
            "mixtral",
            ["w1", "w3"],
            r"has experts, which get no adapters \(model\.lora\.targets: w1\)",
        ),
        (
            "deepseek_v3",
            ["o_proj", "kv_b_proj"],
            r"has latent attention, .* \(model\.lora\.targets: kv_b_proj\); "
            r"choose among kv_a_proj_with_mqa, o_proj, q_a_proj, q_b_proj$",
        ),
        (
            "deepseek_v3",
            "all-linear",
            r"its attention, \[q_a_proj, q_b_proj, kv_a_proj_with_mqa, o_proj\]$",
        ),
        (
            "qwen3_5",
            "all-linear",
            r"such as \[q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj\]$",
        ),
        ("qwen3", ["query"], r"has no linear layer 'query' .*; choose among down_proj, gate_proj"),
        ("qwen3", ["lm_head"], r"has no linear layer 'lm_head'"),
    ],
)
def test_what_gets_no_adapter_is_refused_in_one_sentence(
    ranks: Ranks, tmp_path: Path, kind: str, targets: Any, sentence: str
) -> None:
    make_architecture(tmp_path / "model", kind)
    with pytest.raises(UserError, match=sentence) as refused:
        build(ranks, tmp_path / "model", tmp_path, lora={"targets": targets})
    assert "\n" not in str(refused.value)


def test_the_text_part_of_a_larger_model_is_refused(ranks: Ranks, tmp_path: Path) -> None:
    make_whole_llama4(tmp_path / "model")
    with pytest.raises(
        UserError,
        match=r"has more parts than its text model \(model\.lora\); give its text model alone",
    ):
        build(ranks, tmp_path / "model", tmp_path, lora={"targets": ["q_proj"]})


def test_the_attention_of_a_mixture_gets_adapters(ranks: Ranks, tmp_path: Path) -> None:
    make_architecture(tmp_path / "model", "qwen3_moe")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"]
    group = build(ranks, tmp_path / "model", tmp_path, lora={"rank": 2, "targets": targets})
    assert group.update(make_sequences(5)).applied
    assert len(list(group.learner.policy.trained_weights())) == 3 * 4 * 2


@pytest.fixture(scope="module")
def two_ranks(
    ranks: Ranks, trainers: ForkedPrograms, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What two gloo ranks and a single one report, for the same run in float32, and two in
    bfloat16.
    """
    model = write_model(tmp_path_factory.mktemp("model"))
    alone = built(model, tmp_path_factory.mktemp("one"), "float32", ranks)
    results: dict[str, Any] = {"model": model, "one": drive(alone)}
    for name, dtype in (("two", "float32"), ("narrow", "bfloat16")):
        folder = tmp_path_factory.mktemp(name)
        run_ranks(trainers, folder, "tests.trainer.lora_ranks", model, folder, dtype)
        results[name] = torch.load(folder / "results.pt", weights_only=False)
    return results


def test_two_ranks_train_the_adapters_of_one(two_ranks: Mapping[str, Any]) -> None:
    two, one = two_ranks["two"], two_ranks["one"]
    assert all(torch.equal(two["initial"][name], value) for name, value in one["initial"].items())
    assert two["kl"][0] == one["kl"][0] == 0.0
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
    assert two["kl"] == pytest.approx(one["kl"], rel=1e-3)
    assert distance(one["weights"], one["initial"]) > 0.1
    assert distance(two["weights"], one["weights"]) < 1e-3


@pytest.mark.parametrize("name", ["two", "one", "narrow"])
def test_a_resumed_run_goes_on_bit_for_bit(two_ranks: Mapping[str, Any], name: str) -> None:
    seen = two_ranks[name]
    assert seen["restored"] == {"step": 3}
    assert seen["moved"] > 0
    for key, expected in (("back", "weights"), ("resumed", "further")):
        assert all(
            torch.equal(seen[key][weight], value) for weight, value in seen[expected].items()
        )


def test_a_checkpoint_holds_the_adapters_alone(two_ranks: Mapping[str, Any]) -> None:
    folder, _, name = two_ranks["two"]["checkpoint"].rpartition("/")
    held = storage_at(Path(folder)).reader(name).read_metadata().state_dict_metadata
    tensors = [key for key in held if not key.startswith("rng.")]
    assert len(tensors) == 3 * 14 * 2
    assert all(".lora_A." in key or ".lora_B." in key for key in tensors)


def test_a_new_run_begins_with_another_runs_adapters(
    ranks: Ranks, two_ranks: Mapping[str, Any], tmp_path: Path
) -> None:
    seen = two_ranks["two"]
    model = two_ranks["model"]
    group = LearnerGroup.build(
        make_config(model, tmp_path, model={"lora": {"rank": 5, "alpha": 10}, "dtype": "float32"}),
        ranks,
    )
    assert group.take_weights(Path(seen["checkpoint"])) == {"step": 3}
    found = whole_weights(group)
    assert all(torch.equal(found[name], value) for name, value in seen["weights"].items())
    assert group.learner.updates == 0
    other = LearnerGroup.build(
        make_config(model, tmp_path, model={"lora": {"rank": 5, "alpha": 20}}), ranks
    )
    whole = LearnerGroup.build(make_config(model, tmp_path), ranks)
    for refused in (other, whole):
        with pytest.raises(
            UserError,
            match=r"give both runs the same, or train from the folder that `rollcast model merge`",
        ):
            refused.take_weights(Path(seen["checkpoint"]))
    with pytest.raises(
        UserError, match=r"is of a run with model\.lora = .*; give both runs the same$"
    ):
        whole.restore(Path(seen["checkpoint"]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_exported_adapter_has_the_policys_logits(
    ranks: Ranks, model: Path, tmp_path: Path, dtype: str
) -> None:
    """tests/trainer/test_merged_adapters.py merges it."""
    from peft import PeftConfig, PeftModel

    group = build(ranks, model, tmp_path, dtype=dtype)
    for step in range(2):
        group.update(make_sequences(step))
    group.export(tmp_path / "export")
    tokenizer = {path.name for path in model.iterdir()} - {
        "config.json",
        "generation_config.json",
        "model.safetensors",
    }
    assert {path.name for path in (tmp_path / "export").iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
        *tokenizer,
    }
    exported, own = (
        transformers.AutoTokenizer.from_pretrained(folder)
        for folder in (tmp_path / "export", model)
    )
    assert exported.get_vocab() == own.get_vocab()
    base = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.arange(VOCAB)[None]
    with torch.no_grad():
        before = base(input_ids=ids).logits
        logits = PeftModel.from_pretrained(base, tmp_path / "export").double()(input_ids=ids).logits
        if dtype == "float32":
            own = pefts(model, group).double()(input_ids=ids).logits
            torch.testing.assert_close(logits, own, rtol=0, atol=1e-9)
    assert (logits - before).abs().max() > 0.05
    config = PeftConfig.from_pretrained(tmp_path / "export")
    assert config.base_model_name_or_path == str(model)
    assert (config.r, config.lora_alpha, config.revision) == (4, 12, None)


def test_an_adapter_is_no_model_to_train(ranks: Ranks, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(
        UserError,
        match=r"is an adapter alone; give the folder that `rollcast model merge` makes of it",
    ):
        build(ranks, tmp_path, tmp_path)


def test_an_export_names_the_users_own_parts_and_the_whole_path_of_its_base(
    ranks: Ranks, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from peft import PeftConfig

    monkeypatch.chdir(model.parent)
    policy = build(ranks, model, tmp_path).learner.policy
    settings = Model.model_validate({"path": model.name, "lora": LORA})
    custom_functions = {"recipe.loss": CustomFunction(kind="python", function="./mine.py:loss")}
    AdapterExport(policy, settings, tmp_path / "export", custom_functions=custom_functions).write()
    assert "./mine.py:loss" in (tmp_path / "export" / CUSTOM_FUNCTIONS).read_text()
    assert PeftConfig.from_pretrained(tmp_path / "export").base_model_name_or_path == str(model)
