"""GPUs of a machine, shared out: no card is needed, only what its driver and the environment say."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig, parse_run_config
from rollcast.local.devices import VISIBLE, check_gpus, named_gpus
from rollcast.local.services import service_specs
from rollcast.memory.device import gpu_sizes


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
    specs = service_specs(config, folder / "run.json", embed_redis=False, resume=False, embed_grader=True, gpus=gpus)
    environments = {spec.name: [dict(command.environment()) for command in spec.commands] for spec in specs}
    return {name: [one for one in all_of_it if VISIBLE in one] for name, all_of_it in environments.items()}


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
    assert [one[VISIBLE] for one in chain(found["trainer"], found["generator-0"])] == ["GPU-a1", "GPU-b2"]


def test_a_machine_without_gpus_is_left_as_it_is(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=2, generators=1, workers=1)
    check_gpus(config.local, config.generator, ())
    assert not [one for given in seen(config, tmp_path, ()).values() for one in given]


def test_too_few_gpus_are_one_sentence(tmp_path: Path) -> None:
    config = config_of(tmp_path, ranks=2, generators=2, workers=3)
    check_gpus(config.local, config.generator, tuple("01234567"))
    with pytest.raises(UserError) as refusal:
        check_gpus(config.local, config.generator, tuple("0123456"))
    assert str(refusal.value) == (
        "local.trainer_ranks = 2: with local.generators 2 of generator.tensor_parallel 3 the run needs 8 GPUs, each "
        "for one process, and 7 may be used here; lower one of the three, or name more in CUDA_VISIBLE_DEVICES"
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


def test_gpus_are_counted_by_what_the_driver_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh\nprintf '81559\\n40960\\n'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpu_sizes() == [81559 << 20, 40960 << 20]
    driver.write_text("#!/bin/sh\nexit 9\n")
    assert gpu_sizes() == []
