"""Which transport carries the weights: one choice, made by the trainer."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
import torch
import torch.distributed as dist

from rollcast.config.errors import UserError
from rollcast.weights.receiver import receiver
from rollcast.weights.receiver.receiver import Receiver
from rollcast.weights.receiver.weight_engine import FAILED, JOINING
from rollcast.weights.transport.process_group import Backend, GroupAddress, backend_for
from rollcast.wire import weights_pb2

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def torch_with_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)


@pytest.mark.parametrize(
    ("device", "shares_gpu", "chosen"),
    [(GPU, False, "nccl"), (GPU, True, "gloo"), (CPU, False, "gloo")],
)
def test_gloo_is_chosen_where_nccl_cannot_be_used(
    device: torch.device, shares_gpu: bool, chosen: str
) -> None:
    assert backend_for(device, "auto", shares_gpu=shares_gpu) == chosen
    assert backend_for(device, "gloo", shares_gpu=shares_gpu) == "gloo"
    if chosen == "nccl":
        assert backend_for(device, "nccl", shares_gpu=shares_gpu) == "nccl"
        return
    with pytest.raises(UserError, match=r"^weights\.transport = nccl: .*; set it to auto or gloo$"):
        backend_for(device, "nccl", shares_gpu=shares_gpu)


def test_a_build_without_nccl_sends_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    assert backend_for(GPU) == "gloo"


class NoWorker:
    """In the place of a GroupWorker, which would need the device."""

    def __init__(self) -> None:
        self.opened: Future[None] = Future()


@pytest.mark.parametrize(
    ("device", "backend", "status"),
    [(GPU, "gloo", JOINING), (GPU, "nccl", JOINING), (CPU, "gloo", JOINING), (CPU, "nccl", FAILED)],
)
def test_a_generator_takes_the_transport_that_the_trainer_has_chosen(
    device: torch.device, backend: Backend, status: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def open_lane(address: GroupAddress, device: torch.device, *_: object) -> NoWorker:
        asked.append(address.backend)
        return NoWorker()

    monkeypatch.setattr(receiver, "GroupWorker", open_lane)
    one = Receiver(device=device)
    one.join(
        weights_pb2.Join(
            epoch=1, backend=backend, rank=1, world_size=2, lanes=1
        ).SerializeToString()
    )
    assert one.poll().status == status
    assert asked == ([backend] if status == JOINING else [])
