"""Which transport carries the weights, and what the trainer's log says of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from rollcast.config.connections import Weights
from rollcast.weights.transport.choice import choose_transport


@pytest.mark.parametrize(
    ("settings", "transport", "reason"),
    [
        ({}, "gloo", "there is no GPU, and weights.store.location is not set"),
        ({"transport": "gloo"}, "gloo", "weights.transport is set"),
        ({"transport": "store"}, "store", "weights.transport is set: generators pull versions"),
        (
            {"store": {"location": "s3://bucket/path"}},
            "store",
            "weights.store.location is set: generators pull versions",
        ),
    ],
)
def test_a_trainer_without_a_gpu(settings: dict[str, Any], transport: str, reason: str) -> None:
    weights = Weights.model_validate(settings)
    choice = choose_transport(torch.device("cpu"), weights, shares_gpu=False)
    assert (choice.transport, choice.reason) == (transport, reason)
    assert weights.uses_store == (transport == "store")
    assert weights.staging == ("host" if transport == "store" else "auto")
