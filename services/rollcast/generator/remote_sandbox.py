"""The sandbox of another machine: completions are sent to the grader, which runs the verifiers as
this machine would.

grade() -> an idle connection, or a new one -> Grade -> verdict; the connection is kept
            ^--- pause <--- failed: it is closed, so that the next one may reach another grader
                                    behind the name
patience over, or refused permanently -> `error`: not graded, which is not a wrong answer
"""

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_args

import grpc
from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from rollcast.config.connections import Rpc
from rollcast.config.errors import UserError
from rollcast.config.function_loading import MAX_SENTENCE_CHARACTERS
from rollcast.config.tasks import Grading
from rollcast.connections.grpc import MAX_GRADING_BYTES, call_metadata, open_channel
from rollcast.tasks.grading import grading_seconds
from rollcast.tasks.verifiers import Grade, GradeStatus
from rollcast.telemetry import generator_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.wire import grading_pb2
from rollcast.wire.grading_pb2_grpc import GradingStub

_REFUSED = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""Mistakes of configuration, which are not retried."""

Reply = TypeVar("Reply")
log = get_logger()


class RemoteSandbox:
    """Thread-safe; keeps as many connections as there were concurrent gradings."""

    def __init__(
        self, rpc: Rpc, patience_seconds: float, settings: Grading, exporter: Exporter
    ) -> None:
        """`rpc`: the grader's address.

        `patience_seconds`: deadline of one grading with the wait for the grader.
        """
        self._rpc = rpc
        self._patience_seconds = patience_seconds
        self._metadata = call_metadata(rpc)
        self._settings = settings
        self._exporter = exporter
        self._idle: deque[grpc.Channel] = deque()

    def check(self, verifiers: Collection[str]) -> None:
        """Raises UserError if the grader refuses these verifiers, limits or token; logs if it does
        not respond.
        """
        request = grading_pb2.CheckRequest(
            verifiers=verifiers, limits=self._limits(self._settings.longest_seconds)
        )
        try:
            self._retry(
                lambda stub, seconds: stub.Check(request, timeout=seconds, metadata=self._metadata)
            )
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise UserError(
                    f"grader.token (not shown): the grader at {self._rpc.host} refuses it; set the "
                    "one that it was started with"
                ) from error
            if error.code() in _REFUSED:
                raise UserError(
                    f"grader.host = {self._rpc.host}: it refuses this run: {error.details()}"
                ) from error
            log.warning(
                "the grader does not respond; completions without a grade are left out",
                **_error_fields(error),
            )

    def grade(
        self,
        verifier: str,
        completion: str,
        reference: str,
        *,
        deadline_seconds: float | None = None,
    ) -> Grade:
        """The grader's verdict, `error` if there was no answer in time.

        Raises UserError if rpc.tls cannot be used.
        """
        request = grading_pb2.GradeRequest(
            verifier=verifier,
            completion=completion.encode("utf-8", "surrogatepass"),
            reference=reference.encode("utf-8", "surrogatepass"),
            limits=self._limits(
                deadline_seconds or grading_seconds(self._settings, verifier, reference)
            ),
        )
        if request.ByteSize() > MAX_GRADING_BYTES:
            self._exporter.add(generator_metrics.GRADER_FAILURES, code="oversize")
            return Grade(
                0.0, "error", failure="completion and reference are longer than the grader takes"
            )
        try:
            reply = self._retry(
                lambda stub, seconds: stub.Grade(request, timeout=seconds, metadata=self._metadata)
            )
        except grpc.RpcError as error:
            log.warning("not graded", verifier=verifier, **_error_fields(error))
            return Grade(0.0, "error", failure=f"the grader did not grade it ({error.code().name})")
        if reply.status not in get_args(GradeStatus) or not 0.0 <= reply.reward <= 1.0:
            return Grade(
                0.0, "error", failure="the grader answered with something else than a reward"
            )
        return Grade(
            reply.reward, reply.status, reply.reason, reply.failure[:MAX_SENTENCE_CHARACTERS]
        )

    def close(self) -> None:
        """Closes idle connections; a running grading ends by itself."""
        while self._idle:
            self._idle.pop().close()

    def _retry(self, call: Callable[[Any, float], Reply]) -> Reply:
        """Repeat until there is an answer or the deadline is over. Raises the last RpcError."""
        deadline = time.monotonic() + self._patience_seconds
        attempts = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_before_delay(self._patience_seconds),
            # Longer pauses would use up the deadline of a grading
            wait=wait_random_exponential(multiplier=0.1, max=2.0),
            reraise=True,
        )
        return attempts(lambda: self._once(call, max(0.1, deadline - time.monotonic())))

    def _once(self, call: Callable[[Any, float], Reply], seconds: float) -> Reply:
        try:
            # Without a check before it: other threads take connections too.
            channel = self._idle.pop()
        except IndexError:
            channel = open_channel(self._rpc, max_message_bytes=MAX_GRADING_BYTES)
        try:
            reply = call(GradingStub(channel), seconds)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            # A new connection may reach another grader behind the same name.
            channel.close()
            self._exporter.add(generator_metrics.GRADER_FAILURES, code=error.code().name.lower())
            raise
        self._idle.append(channel)
        return reply

    def _limits(self, deadline_seconds: float) -> Any:
        return grading_pb2.GradingLimits(
            deadline_seconds=deadline_seconds,
            seconds_per_test=self._settings.seconds_per_test,
            memory_mib=self._settings.memory_mib,
        )


def _may_pass(error: BaseException) -> bool:
    """Away, full, stopping or broken off: another attempt may reach another grader, or this one
    later.
    """
    # The deadline of a call is the rest of the patience, so that nothing is left for another
    # attempt.
    return isinstance(error, grpc.RpcError) and error.code() not in (
        *_REFUSED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    )


def _error_fields(error: grpc.RpcError) -> dict[str, str]:
    return {"code": error.code().name, "details": str(error.details())[:200]}
