"""A starting generator's reports to the trainer, which counts its start-up (`rollcast.weights.sender.sightings`)."""

import asyncio
import secrets
from contextlib import suppress

import grpc
import grpc.aio

from rollcast.config.errors import UserError
from rollcast.config.services import Rpc
from rollcast.connections.grpc import call_metadata, open_channel_async
from rollcast.wire import weights_pb2
from rollcast.wire.weights_pb2_grpc import WeightSyncStub

REPORT_SECONDS = 5.0
"""Interval of a starting generator's reports, and the deadline of one."""


def new_key() -> bytes:
    """A secret between this process and the trainer."""
    return secrets.token_bytes(16)


async def report_starting(rpc: Rpc, key: bytes) -> None:
    """Report to the trainer, as soon as there is one, that this process exists. Runs until it is cancelled.

    What the trainer or a certificate refuses is not reported here, because the member's session meets it too.
    """
    with suppress(UserError):
        async with open_channel_async(rpc) as channel:
            stub = WeightSyncStub(channel)  # type: ignore[no-untyped-call]
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await stub.Starting(
                        weights_pb2.Presence(key=key),
                        metadata=call_metadata(rpc),
                        timeout=REPORT_SECONDS,
                        wait_for_ready=True,
                    )
                await asyncio.sleep(REPORT_SECONDS)
