"""Calls of a gRPC server whose client sends no request: cancelled after a deadline, or earlier to
make room for others.

Every call takes a thread from the moment it is opened. A client may open many and send nothing;
then calls of other clients would wait for a thread until the silent ones are cancelled.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc

MAX_SILENT_CALLS = 128
"""Concurrent calls without a request; for one more, the oldest is cancelled."""
REQUEST_SECONDS = 15.0
"""How long a call may be without its first request."""


class SilentCalls(grpc.ServerInterceptor):
    """Knows the calls of its server that have not sent a request yet. Thread-safe.

    Handlers that take one request are served as streams of one, because gRPC would wait for that
    request without end.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened_at: dict[grpc.ServicerContext, float] = {}
        self._timer: threading.Timer | None = None

    def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = continuation(details)
        if handler is None:
            return None
        answers = "stream" if handler.response_streaming else "unary"
        if handler.request_streaming:
            respond = getattr(handler, f"stream_{answers}")
        else:
            respond = _as_stream_handler(getattr(handler, f"unary_{answers}"))
        make_handler = getattr(grpc, f"stream_{answers}_rpc_method_handler")
        return make_handler(
            lambda requests, context: respond(self._track_requests(requests, context), context),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )

    def _track_requests(
        self, requests: Iterator[Any], context: grpc.ServicerContext
    ) -> Iterator[Any]:
        """The requests, unchanged; the call counts as silent until the first of them."""
        self._begin(context)

        def tracked_requests() -> Iterator[Any]:
            for request in requests:
                self._forget(context)
                yield request

        return tracked_requests()

    def _begin(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._opened_at[context] = time.monotonic()
            oldest = (
                next(iter(self._opened_at)) if len(self._opened_at) > MAX_SILENT_CALLS else None
            )
            self._look_later()
        if not context.add_callback(lambda: self._forget(context)):
            self._forget(context)
        if oldest is not None:
            self._forget(oldest)
            oldest.cancel()

    def _forget(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._opened_at.pop(context, None)

    def _look_later(self) -> None:
        """Called with the lock held."""
        if self._timer is None and self._opened_at:
            # Interval of looking for calls that were silent too long, while there are any
            self._timer = threading.Timer(1.0, self._look)
            self._timer.daemon = True
            self._timer.start()

    def _look(self) -> None:
        latest = time.monotonic() - REQUEST_SECONDS
        with self._lock:
            overdue = [
                context for context, opened_at in self._opened_at.items() if opened_at < latest
            ]
            for context in overdue:
                del self._opened_at[context]
            self._timer = None
            self._look_later()
        for context in overdue:
            context.cancel()


def _as_stream_handler(behavior: Any) -> Any:
    """`behavior`, which takes one request, for a stream of requests."""

    def answer(requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        for request in requests:
            return behavior(request, context)
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call carries no request")

    return answer
