"""Real generator and trainer processes around the publisher."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rollcast.weights.plan.manifest import TensorSpec
from testkit.weights import generator_process
from testkit.weights.device import DEVICE
from testkit.weights.generator_process import use_one_card
from testkit.weights.trainer_end import SPECS, WEIGHTS, Process, Trainer, start_forkserver


@pytest.fixture
def start_trainer() -> Iterator[Callable[..., Trainer]]:
    trainers: list[Trainer] = []

    def start(specs: list[TensorSpec] = SPECS, **settings: Any) -> Trainer:
        trainers.append(Trainer(specs, **{"device": DEVICE, **settings}))
        return trainers[-1]

    yield start
    for trainer in trainers:
        trainer.close()


@pytest.fixture(scope="session")
def forkserver() -> None:
    if DEVICE != "cpu":
        use_one_card("tests")
    start_forkserver("tests.weights.trainer_process")


@pytest.fixture
def start_process(forkserver: None) -> Iterator[Callable[..., Process]]:
    """start(target, settings)"""
    processes: list[Process] = []

    def start(target: Any, settings: dict[str, Any]) -> Process:
        processes.append(Process(target, settings))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


@pytest.fixture
def start_generator(start_process: Callable[..., Process]) -> Callable[..., Process]:
    own = {"weights": WEIGHTS, "device": DEVICE}

    def start(name: str, rpc: dict[str, Any], **settings: Any) -> Process:
        return start_process(generator_process.run, {**own, "name": name, "rpc": rpc, **settings})

    return start
