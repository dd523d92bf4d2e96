"""Page locks of host memory, and new memory of a device, with CUDA replaced at its boundary."""

from __future__ import annotations

import gc

import pytest
import structlog
import torch

from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.plan.snapshot import Snapshot, memory_bytes
from rollcast.weights.receiver.host_memory import attach, in_host_memory
from rollcast.weights.sender.staging import StagingSlots
from tests.weights.fake_cuda import FakeRuntime, LateStream, replace_cuda

BUCKETS = plan_buckets(
    [TensorSpec("a", "bfloat16", (300, 7)), TensorSpec("b", "float32", (70, 3))], 1 << 12
)


@pytest.fixture
def stream() -> LateStream:
    return LateStream()


def test_a_refused_page_lock_leaves_no_error_to_the_next_kernel(
    monkeypatch: pytest.MonkeyPatch, stream: LateStream
) -> None:
    runtime = FakeRuntime(refuses=True)
    replace_cuda(monkeypatch, runtime, stream)
    StagingSlots(BUCKETS)
    assert runtime.num_calls == 2
    torch.zeros(1, device="cuda")


def test_a_refusal_is_reported_once(monkeypatch: pytest.MonkeyPatch, stream: LateStream) -> None:
    monkeypatch.setattr("rollcast.weights.plan.page_locked._reported", set())
    replace_cuda(monkeypatch, FakeRuntime(refuses=True), stream)
    with structlog.testing.capture_logs() as logs:
        StagingSlots(BUCKETS)
    assert [line["cuda_error"] for line in logs if "page-locked" in line["event"]] == [801]


def test_each_mapping_of_a_generators_version_is_locked_once_when_it_is_read_and_released_with_it(
    monkeypatch: pytest.MonkeyPatch, stream: LateStream
) -> None:
    runtime = FakeRuntime(refuses=False)
    replace_cuda(monkeypatch, runtime, stream)
    owner = in_host_memory(BUCKETS)
    reader = attach(owner.path, BUCKETS)
    assert not runtime.registered, "the first piece of a version would miss its deadline"
    for _ in range(2):  # two versions
        for mapped in (owner, reader):
            assert [name for name, _ in mapped.views()] == ["a", "b"]
    size = memory_bytes(BUCKETS)
    assert runtime.registered == {owner.memory.data_ptr(): size, reader.memory.data_ptr(): size}
    left = owner.memory.data_ptr()
    del mapped, reader
    gc.collect()
    assert list(runtime.registered) == [left]
    del owner
    gc.collect()
    assert not runtime.registered


def test_a_refused_lock_is_not_tried_again_under_every_pause(
    monkeypatch: pytest.MonkeyPatch, stream: LateStream
) -> None:
    runtime = FakeRuntime(refuses=True)
    replace_cuda(monkeypatch, runtime, stream)
    owner = in_host_memory(BUCKETS)
    for _ in range(3):
        assert dict(owner.views()).keys() == {"a", "b"}
    assert runtime.num_calls == 1


def test_nothing_queued_on_the_makers_stream_overwrites_what_other_lanes_receive(
    monkeypatch: pytest.MonkeyPatch, stream: LateStream
) -> None:
    replace_cuda(monkeypatch, FakeRuntime(refuses=False), stream)
    made = Snapshot.on(torch.device("cuda"), BUCKETS)
    received = torch.randint(2, 256, made.memory.shape, dtype=torch.uint8)
    made.memory.copy_(received)  # on the stream of another lane
    stream.synchronize()
    assert made.memory.equal(received)
