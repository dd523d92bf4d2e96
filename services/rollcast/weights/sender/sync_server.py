"""The gRPC service WeightSync: one bidirectional stream for each generator, turned into calls and a
queue.

    handler thread:  outgoing queue --> stream        ends at None, at a SeatRefusal, or when the
                     call ends
    reader thread:   stream --> announced(...) once, then received(seat, message); at the end
                     disconnected(seat)

Neither thread decides anything.
"""

import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Protocol

import grpc

from rollcast.telemetry.logging import get_logger
from rollcast.weights.sender.roster import Outgoing, Seat, SeatRefusal
from rollcast.weights.sender.sightings import Sightings
from rollcast.wire import weights_pb2, weights_pb2_grpc

log = get_logger()


class SyncEvents(Protocol):
    """The publisher's reactions to the streams' messages; called from many threads."""

    def handle_announcement(
        self, announce: weights_pb2.Announce, outgoing: Outgoing
    ) -> Seat | None: ...
    def handle_message(self, seat: Seat, message: weights_pb2.FromGenerator) -> None: ...
    def handle_disconnect(self, seat: Seat) -> None: ...


class WeightSyncService(weights_pb2_grpc.WeightSyncServicer):
    def __init__(self, events: SyncEvents, sightings: Sightings) -> None:
        self._events = events
        self._sightings = sightings

    def Starting(  # noqa: N802
        self, request: weights_pb2.Presence, context: grpc.ServicerContext
    ) -> weights_pb2.Noted:
        self._sightings.note(request.key, time.monotonic())
        return weights_pb2.Noted()

    def Sync(  # noqa: N802
        self, request_iterator: Iterator[weights_pb2.FromGenerator], context: grpc.ServicerContext
    ) -> Iterator[weights_pb2.FromTrainer]:
        outgoing: Outgoing = SimpleQueue()
        # False if the call has ended already: nothing would end the reading of the queue.
        if not context.add_callback(lambda: outgoing.put(None)):
            return
        threading.Thread(
            target=self._read, args=(request_iterator, outgoing), name="weight-sync", daemon=True
        ).start()
        # Deadline for the first message; then the call is ended.
        announce_seconds = 10.0
        try:
            message = outgoing.get(timeout=announce_seconds)
        except Empty:
            context.abort(
                grpc.StatusCode.DEADLINE_EXCEEDED, f"no announcement within {announce_seconds} s"
            )
        while message is not None:
            if isinstance(message, SeatRefusal):
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, message.reason)
                return
            yield message
            message = outgoing.get()

    def _read(self, requests: Iterator[weights_pb2.FromGenerator], outgoing: Outgoing) -> None:
        seat = None
        try:
            for message in requests:
                if seat is not None:
                    self._events.handle_message(seat, message)
                elif message.WhichOneof("kind") == "announce":
                    seat = self._events.handle_announcement(message.announce, outgoing)
                    if seat is None:
                        return
                else:
                    outgoing.put(SeatRefusal("the first message must be an announcement"))
                    return
        except grpc.RpcError:
            if seat is not None:
                log.info("a generator's stream broke", generator=seat.name)
        finally:
            if seat is not None:
                self._events.handle_disconnect(seat)
            outgoing.put(None)
