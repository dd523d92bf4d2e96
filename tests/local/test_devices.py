"""GPUs of a machine, shared out: no card is needed, only what its driver
and the environment say.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.drafts import Drafts, check_gpu_drafts
from rollcast.config.errors import PassingError, UserError
from rollcast.config.lora import Lora, check_gpu_dtype
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local import devices
from rollcast.local.devices import (
    VISIBLE,
    check_gpus,
    check_transport,
    named_gpus,
    num_devices,
    with_gpus,
)
from rollcast.local.services import service_specs
from rollcast.memory.device import gpu_sizes
from rollcast.telemetry import gpus
from rollcast.telemetry.gpus import EXPECTED_GPUS


def config_of(folder: Path, *, ranks: int, generators: int, workers: int) -> RunConfig:
    settings: dict[str, Any] = {
        "run": "r",
        "folder": str(folder),
        "model": {"path": "none"},
        "redis": {"port": 6379},
        "local": {"trainer_ranks": ranks, "generators": generators},
        "generator": {"tensor_parallel": workers},
    }
    return parse_run_config(settings, source="test")


def seen(config: RunConfig, folder: Path, gpus: tuple[str, ...]) -> dict[str, list[dict[str, str]]]:
    """Service -> what each of its processes gets that names GPUs."""
    specs = service_specs(
        config, folder / "run.json", embed_redis=False, resume=False, embed_grader=True, gpus=gpus
    )
    environments = {
        spec.name: [dict(command.environment()) for command in spec.commands] for spec in specs
    }
    return {
        name: [one for one in all_of_it if VISIBLE in one]
        for name, all_of_it in environments.items()
    }


def test_no_two_processes_share_a_gpu(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=2, generators=2, workers=2)
    found = seen(config, tmp_path, ("0", "1", "2", "3", "4", "5", "6"))
    ranks = found.pop("trainer")
    assert [(rank[VISIBLE], rank["LOCAL_RANK"]) for rank in ranks] == [("0,1", "0"), ("0,1", "1")]
    assert {name: [one[VISIBLE] for one in given] for name, given in found.items()} == {
        "generator-0": ["2,3"],
        "generator-1": ["4,5"],
        "forecaster": [""],
        "grader": [""],
    }


def test_gpus_go_by_the_names_that_they_are_given(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=1, generators=1, workers=1)
    found = seen(config, tmp_path, ("GPU-a1", "GPU-b2"))
    assert [one[VISIBLE] for one in chain(found["trainer"], found["generator-0"])] == [
        "GPU-a1",
        "GPU-b2",
    ]


def test_a_machine_without_gpus_is_left_as_it_is(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=2, generators=1, workers=1)
    check_gpus(config.local, config.generator, ())
    assert not [one for given in seen(config, tmp_path, ()).values() for one in given]


def test_adapters_in_float32_are_refused_on_a_gpu(tmp_path: Path) -> None:
    """vLLM asserted it in its first step on a card, after a minute of starting."""
    adapters = Lora()
    check_gpu_dtype(None, "float32")
    check_gpu_dtype(adapters, "bfloat16")
    with pytest.raises(UserError, match=r"^model\.dtype = float32: on a GPU vLLM applies"):
        check_gpu_dtype(adapters, "float32")


def test_drafts_are_refused_on_a_gpu() -> None:
    drafts = Drafts(method="ngram", num_speculative_tokens=3)
    check_gpu_drafts(None)
    with pytest.raises(UserError, match=r"^generator\.engine\.speculative_config: .* on a GPU"):
        check_gpu_drafts(drafts)


def test_too_few_gpus_are_one_sentence(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=2, generators=2, workers=3)
    check_gpus(config.local, config.generator, tuple("01234567"))
    with pytest.raises(UserError) as refusal:
        check_gpus(config.local, config.generator, tuple("0123456"))
    assert str(refusal.value) == (
        "local.trainer_ranks = 2: with local.generators 2 of generator.tensor_parallel 3 the run "
        "needs 8 GPUs, each for one process, and 7 may be used here; lower one of the three, or "
        "name more in CUDA_VISIBLE_DEVICES"
    )


@pytest.mark.parametrize(
    ("visible", "left"),
    [
        (None, ("0", "1", "2")),
        ("2, 0", ("2", "0")),
        ("", ()),
        ("-1", ()),
        ("1,-1,2", ("1",)),
        ("GPU-a1,GPU-b2", ("GPU-a1", "GPU-b2")),
    ],
)
def test_what_the_environment_hides_is_not_used(visible: str | None, left: tuple[str, ...]) -> None:
    """As CUDA reads it (programming guide, environment variables)."""
    assert named_gpus(3, {} if visible is None else {VISIBLE: visible}) == left


def test_a_list_of_gpus_on_a_machine_without_any_names_none() -> None:
    assert named_gpus(0, {VISIBLE: "0,1"}) == ()


def test_gpus_are_counted_by_what_the_driver_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\nprintf '81559\\n40960\\n'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpu_sizes() == [81559 << 20, 40960 << 20]
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert gpu_sizes() == []


def test_one_gpu_is_shared_by_trainer_and_generators(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=1, generators=2, workers=1)
    check_gpus(config.local, config.generator, ("GPU-a1",))
    found = seen(config, tmp_path, ("GPU-a1",))
    own = {
        name: [(one[VISIBLE], one[EXPECTED_GPUS]) for one in given] for name, given in found.items()
    }
    shared = [("GPU-a1", "1")]
    none = [("", "0")]
    assert own == {
        "trainer": shared,
        "generator-0": shared,
        "generator-1": shared,
        "forecaster": none,
        "grader": none,
    }
    local = with_gpus(config.local, ("GPU-a1",))
    assert num_devices(local, config.generator) == 1, "a device-hour is an hour of the card, once"


@pytest.mark.parametrize(
    ("ranks", "workers", "blamed"),
    [(2, 1, "local.trainer_ranks = 2"), (1, 2, "generator.tensor_parallel = 2")],
)
def test_one_gpu_has_one_process_of_each_role(
    tmp_path: Path, ranks: int, workers: int, blamed: str
) -> None:
    config = config_of(tmp_path, ranks=ranks, generators=1, workers=workers)
    with pytest.raises(UserError, match=rf"^{blamed}: one GPU may be used here"):
        check_gpus(config.local, config.generator, ("0",))


def test_a_run_may_use_fewer_gpus_than_there_are(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=1, generators=1, workers=1)
    one = config.local.model_copy(update={"gpus": 1})
    check_gpus(one, config.generator, ("0", "1", "2"))
    assert with_gpus(one, ("0", "1", "2")).shares_gpu
    assert not with_gpus(config.local, ("0", "1", "2")).shares_gpu
    with pytest.raises(UserError, match=r"^local\.gpus = 1: 0 may be used here"):
        check_gpus(one, config.generator, ())
    three = config_of(tmp_path, ranks=2, generators=1, workers=1)
    two = three.local.model_copy(update={"gpus": 2})
    with pytest.raises(
        UserError, match=r"needs 3 GPUs, .* and 2 may be used here; .* or raise local\.gpus$"
    ):
        check_gpus(two, three.generator, ("0", "1", "2"))


def test_nccl_is_refused_where_it_cannot_work() -> None:
    check_transport("nccl", has_gpus=True, shares_gpu=False)
    check_transport("auto", has_gpus=True, shares_gpu=True)
    for has_gpus, why in ((True, "share one GPU"), (False, "no GPU may be used here")):
        with pytest.raises(
            UserError, match=rf"^weights\.transport = nccl: .*{why}.*; set it to auto or gloo$"
        ):
            check_transport("nccl", has_gpus=has_gpus, shares_gpu=has_gpus)


def test_a_driver_without_gpus_is_no_machine_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run would be on the CPU without a word."""
    driver = tmp_path / "version"
    driver.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27 2025\n"
    )
    monkeypatch.setattr(gpus, "DRIVER_VERSION", driver)
    monkeypatch.setattr(devices, "version", lambda package: "2.13.0")
    monkeypatch.delenv(VISIBLE, raising=False)
    config = config_of(tmp_path, ranks=1, generators=1, workers=1)
    with pytest.raises(
        PassingError, match=r"nvidia-smi reports no GPU, and NVIDIA's driver 580\.65\.06 is loaded"
    ):
        check_gpus(config.local, config.generator, ())
    monkeypatch.setenv(VISIBLE, "")
    check_gpus(config.local, config.generator, ())
