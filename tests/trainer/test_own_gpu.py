"""A rank that must have a GPU: no card is needed, only what torch and the driver's file say."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rollcast.config.errors import EXIT_FAILED, EXIT_USER_ERROR, PassingError, UserError
from rollcast.telemetry import gpus
from rollcast.trainer import trial
from rollcast.trainer.learner.ranks import join_ranks

OLD_DRIVER = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC "
    "version:\n"
)
NEW_DRIVER = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@x)\n"
)
Node = Callable[..., None]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """Makes this process one of CUDA's build on a node with this driver, on which torch finds this
    many GPUs.
    """

    def make(*, driver: str, found: int, cuda: str | None = "13.0") -> None:
        file = tmp_path / "version"
        file.write_text(driver)
        monkeypatch.setattr(gpus, "DRIVER_VERSION", file)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: found > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: found)
        monkeypatch.setenv(gpus.EXPECTED_GPUS, "1")
        monkeypatch.setenv(gpus.NODE_NAME, "node-17")

    return make


def refusal() -> UserError:
    with pytest.raises(UserError) as raised:
        join_ranks(timeout_seconds=5)
    return raised.value


def test_a_driver_that_is_too_old_is_named_and_no_restart_helps(node: Node) -> None:
    node(driver=OLD_DRIVER, found=0)
    error = refusal()
    assert error.exit_code == EXIT_USER_ERROR
    assert str(error).startswith(
        "NVIDIA driver 550.54.15 on node node-17: torch's CUDA 13.0 needs R580 or newer"
    )


def test_a_card_that_is_not_found_is_tried_again_and_its_node_is_named(node: Node) -> None:
    node(driver=NEW_DRIVER, found=0)
    error = refusal()
    assert isinstance(error, PassingError)
    assert error.exit_code == EXIT_FAILED
    assert (
        "node node-17 has a GPU that cannot be used (torch finds 0 of 1; driver 580.159.04)"
        in str(error)
    )


def test_a_rank_whose_own_card_is_missing_does_not_share_another(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node(driver=NEW_DRIVER, found=1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert "torch finds 1 of 2" in str(refusal())


def test_a_card_that_fails_at_its_first_work_is_not_left_for_the_cpu(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(device: torch.device) -> None:
        raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

    node(driver=NEW_DRIVER, found=1)
    monkeypatch.setattr(torch.cuda, "set_device", broken)
    error = refusal()
    assert error.exit_code == EXIT_FAILED
    assert (
        "node node-17 has a GPU that cannot be used (RuntimeError: CUDA error: uncorrectable ECC"
        in str(error)
    )


def test_a_build_for_cpus_does_not_serve_a_pod_with_gpus(node: Node) -> None:
    node(driver=NEW_DRIVER, found=0, cuda=None)
    error = refusal()
    assert error.exit_code == EXIT_USER_ERROR
    assert "ROLLCAST_GPUS = 1: torch is a build for CPUs" in str(error)


def test_the_process_ends_with_that_code_and_one_sentence(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node(driver=OLD_DRIVER, found=0)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"run": "r", "model": {"path": "none"}}))
    monkeypatch.setattr(
        sys, "argv", ["trial", "--config", str(file), "--trial", "none", "--out", "none"]
    )
    # Its logger would write to this test's standard error for good.
    monkeypatch.setattr(trial, "configure_logging", lambda service: None)
    assert trial.main() == EXIT_USER_ERROR
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: NVIDIA driver 550.54.15")
    assert not any("Traceback" in line for line in said)
