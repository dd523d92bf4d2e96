"""Peers of the weight-sync port that open streams and send nothing, while a generator announces
itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
import grpc.aio

from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION
from rollcast.wire.weights_pb2_grpc import WeightSyncStub
from testkit.weights.trainer_end import Trainer

SILENT_STREAMS = 300
PATIENCE_SECONDS = 60.0
"""Above the deadlines of the server, on a machine that is busy."""


async def welcomed_among_silent_streams(
    port: int,
) -> tuple[list[grpc.StatusCode], list[grpc.StatusCode]]:
    """How the silent streams ended that had ended when the Welcome came, and how all
    of them ended.
    """
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = WeightSyncStub(channel)
        silent = [stub.Sync() for _ in range(SILENT_STREAMS)]
        await asyncio.sleep(1.0)  # they have reached the server
        call = stub.Sync()
        announce = weights_pb2.Announce(
            generator="honest", num_workers=1, lm_head="fp32", slots=4, wire=WIRE_VERSION
        )
        await call.write(weights_pb2.FromGenerator(announce=announce))
        message = await asyncio.wait_for(call.read(), PATIENCE_SECONDS)
        assert message.WhichOneof("kind") == "welcome"
        before = [await one.code() for one in silent if one.done()]
        codes = await asyncio.wait_for(
            asyncio.gather(*(one.code() for one in silent)), PATIENCE_SECONDS
        )
    return before, codes


def test_a_welcome_does_not_wait_until_silent_streams_are_given_up(
    start_trainer: Callable[..., Trainer],
) -> None:
    before, codes = asyncio.run(welcomed_among_silent_streams(start_trainer().rpc["port"]))
    assert grpc.StatusCode.DEADLINE_EXCEEDED not in before
    assert len(before) < SILENT_STREAMS
    assert grpc.StatusCode.OK not in codes
