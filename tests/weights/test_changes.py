"""What changed between two versions, exactly, whatever breaks on the way; and whole where nobody holds the base."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.weights.transport.changes import apply_changes, pack_changes
from rollcast.weights.transport.process_group import WeightGroup
from tests.weights.conftest import Process, Trainer
from tests.weights.uneven import UNEVEN


@given(
    item_bytes=st.sampled_from([1, 2, 4, 8]),
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    changed=st.sets(st.integers(0, 159), max_size=60),
    seed=st.integers(0, 9),
)
def test_the_base_becomes_the_version(item_bytes: int, lengths: list[int], changed: set[int], seed: int) -> None:
    """Every bit pattern is compared and copied as it is."""
    size = item_bytes * sum(lengths)
    old = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    new = old.clone()
    for place in changed:
        new[place % size] ^= 0x81
    packed = pack_changes(new, old, item_bytes)
    differing = {int(place) // item_bytes for place in (new != old).nonzero()[:, 0]}
    if packed is None:
        assert len(differing) * (item_bytes + 4) >= size
    else:
        assert packed.numel() == len(differing) * (item_bytes + 4)
        stretches = [part.clone() for part in old.split([item_bytes * length for length in lengths])]
        apply_changes(packed, stretches, item_bytes)
        assert torch.equal(torch.cat(stretches), new)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of what this process, which has all of the trainer's lanes, broadcasts."""
    sizes: list[int] = []
    broadcast = WeightGroup.broadcast

    def counted(self: WeightGroup, piece: torch.Tensor) -> None:
        sizes.append(piece.numel())
        broadcast(self, piece)

    monkeypatch.setattr(WeightGroup, "broadcast", counted)
    return sizes


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_version_travels_as_its_changes_to_who_holds_the_one_before(
    lanes: int, start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process], sent: list[int]
) -> None:
    trainer = start_trainer(UNEVEN, lanes=lanes, encoding="changed")
    trainer.publish(0)
    generators = [start_generator("a", trainer.rpc), start_generator("b", trainer.rpc, num_workers=2)]
    trainer.wait_members("a", "b")
    for step, changed_bytes in ((1, 300), (2, 0), (3, None), (4, 1)):
        sent.clear()
        expected = trainer.publish(step, changed_bytes=changed_bytes)
        for generator in generators:
            assert generator.wait("applied", version=f"1.{step}")["digest"] == expected
        if changed_bytes is not None:
            assert sum(sent) <= 8 * changed_bytes + 100 * lanes, "words of up to 4 bytes, their positions, and sizes"
    expected = trainer.publish(5, changed_bytes=10)
    late = start_generator("late", trainer.rpc)
    assert late.wait("applied", version="1.5")["digest"] == expected, "it holds nothing, so it gets everything"


def test_who_lost_the_base_gets_everything(
    start_trainer: Callable[..., Trainer], start_generator: Callable[..., Process]
) -> None:
    """One wrong bit in mid-change: half-changed memory is no base, and the whole version follows."""
    trainer = start_trainer(UNEVEN, lanes=2, encoding="changed")
    trainer.publish(0)
    generator = start_generator("a", trainer.rpc)
    trainer.wait_members("a")
    generator.tell("corrupt")
    expected = trainer.publish(1, changed_bytes=200)
    assert generator.wait("applied", version="1.1")["digest"] == expected
    assert trainer.metric('rollcast_weight_failures_total{reason="publish",run="test"}') == 1
