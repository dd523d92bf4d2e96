"""Reports of a generator to the trainer while its engine starts, before it is a member."""

import asyncio
import secrets
from contextlib import suppress

import grpc.aio

from rollcast.config.connections import Rpc
from rollcast.config.errors import UserError
from rollcast.connections.grpc import call_metadata, open_channel_async
from rollcast.wire import weights_pb2
from rollcast.wire.weights_pb2_grpc import WeightSyncStub

REPORT_SECONDS = 5.0
"""Interval of a starting generator's reports, and the deadline of one."""


def new_key() -> bytes:
    """A secret between this process and the trainer."""
    return secrets.token_bytes(16)


async def report_starting(rpc: Rpc, key: bytes) -> None:
    """Report to the trainer, as soon as there is one, that this process exists. Runs until it is
    cancelled.

    So the trainer counts a generator's start-up, see `rollcast.weights.sender.sightings`.
    """
    # What the trainer or a certificate refuses is not reported here, because the member's session
    # meets it too.
    with suppress(UserError):
        async with open_channel_async(rpc) as channel:
            stub = WeightSyncStub(channel)  # type: ignore[no-untyped-call]
            presence = weights_pb2.Presence(key=key)
            while True:
                with suppress(grpc.aio.AioRpcError):
                    await stub.Starting(
                        presence,
                        metadata=call_metadata(rpc),
                        timeout=REPORT_SECONDS,
                        wait_for_ready=True,
                    )
                await asyncio.sleep(REPORT_SECONDS)
