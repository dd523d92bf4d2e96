"""The sandbox of another machine: completions are sent to the grader, which calls them as this machine's would.

grade() -> a connection that is idle, or a new one -> Grade -> verdict; the connection is kept
            ^--- pause <--- failed: it is closed, so that the next one may reach another grader behind the name
patience over, or refused for good -> `error`: not graded, which is no wrong answer
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, TypeVar, get_args

import grpc
from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from rollcast.config.errors import UserError
from rollcast.config.services import Rpc
from rollcast.config.tasks import Grading
from rollcast.connections.grpc import MAX_GRADING_BYTES, call_metadata, open_channel
from rollcast.tasks.own_functions import MAX_SENTENCE
from rollcast.tasks.time_limits import grading_seconds
from rollcast.tasks.verifiers import Grade, GradeStatus
from rollcast.telemetry import names
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.wire import grading_pb2
from rollcast.wire.grading_pb2_grpc import GradingStub

LONGEST_PAUSE_SECONDS = 2.0
_REFUSED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
"""A mistake of configuration: asking again changes nothing."""

Reply = TypeVar("Reply")
log = get_logger()


class RemoteSandbox:
    """Thread-safe; as many connections as gradings were under way at once."""

    def __init__(self, rpc: Rpc, patience_seconds: float, settings: Grading, exporter: Exporter) -> None:
        """`rpc`: where the grader is. `patience_seconds`: of one grading, waiting for the grader included."""
        self._rpc = rpc
        self._patience_seconds = patience_seconds
        self._settings = settings
        self._exporter = exporter
        self._idle: deque[grpc.Channel] = deque()

    def check(self, verifiers: Collection[str]) -> None:
        """Raises UserError where the grader refuses these verifiers, limits or token; one that is away is logged."""
        request = grading_pb2.CheckRequest(verifiers=verifiers, limits=self._limits(self._settings.longest_seconds))
        try:
            self._patiently(lambda stub, seconds: stub.Check(request, timeout=seconds, metadata=self._metadata()))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED:
                raise UserError(
                    f"grader.token (not shown): the grader at {self._rpc.host} refuses it; set the one that it was "
                    "started with"
                ) from error
            if error.code() in _REFUSED:
                raise UserError(f"grader.host = {self._rpc.host}: it refuses this run: {error.details()}") from error
            log.warning("the grader does not answer; what it does not grade is left out", **_told(error))

    def grade(self, verifier: str, completion: str, reference: str, *, deadline_seconds: float | None = None) -> Grade:
        """The grader's verdict; `error` where none came in time. Raises UserError where rpc.tls cannot be used."""
        request = grading_pb2.GradeRequest(
            verifier=verifier,
            completion=completion.encode("utf-8", "surrogatepass"),
            reference=reference.encode("utf-8", "surrogatepass"),
            limits=self._limits(deadline_seconds or grading_seconds(self._settings, verifier, reference)),
        )
        if request.ByteSize() > MAX_GRADING_BYTES:
            self._exporter.add(names.GRADER_FAILURES, code="oversize")
            return Grade(0.0, "error", failure="completion and reference are longer than the grader takes")
        try:
            reply = self._patiently(
                lambda stub, seconds: stub.Grade(request, timeout=seconds, metadata=self._metadata())
            )
        except grpc.RpcError as error:
            log.warning("not graded", verifier=verifier, **_told(error))
            return Grade(0.0, "error", failure=f"the grader did not grade it ({error.code().name})")
        if reply.status not in get_args(GradeStatus) or not 0.0 <= reply.reward <= 1.0:
            return Grade(0.0, "error", failure="the grader answered with something else than a reward")
        return Grade(reply.reward, reply.status, reply.reason, reply.failure[:MAX_SENTENCE])

    def close(self) -> None:
        """Closes idle connections; a grading under way ends by itself."""
        while self._idle:
            self._idle.pop().close()

    def _patiently(self, call: Callable[[Any, float], Reply]) -> Reply:
        """Repeat until an answer comes or the patience is over. Raises the last RpcError."""
        until = time.monotonic() + self._patience_seconds
        attempts = Retrying(
            retry=retry_if_exception(_may_pass),
            stop=stop_before_delay(self._patience_seconds),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_SECONDS),
            reraise=True,
        )
        return attempts(lambda: self._once(call, max(0.1, until - time.monotonic())))

    def _once(self, call: Callable[[Any, float], Reply], seconds: float) -> Reply:
        try:
            channel = self._idle.pop()
        except IndexError:
            channel = open_channel(self._rpc, max_message_bytes=MAX_GRADING_BYTES)
        try:
            reply = call(GradingStub(channel), seconds)  # type: ignore[no-untyped-call]
        except grpc.RpcError as error:
            channel.close()
            self._exporter.add(names.GRADER_FAILURES, code=error.code().name.lower())
            raise
        self._idle.append(channel)
        return reply

    def _limits(self, deadline_seconds: float) -> Any:
        return grading_pb2.GradingLimits(
            deadline_seconds=deadline_seconds,
            seconds_per_test=self._settings.seconds_per_test,
            memory_mib=self._settings.memory_mib,
        )

    def _metadata(self) -> list[tuple[str, str]]:
        return call_metadata(self._rpc)


def _may_pass(error: BaseException) -> bool:
    """Away, full, stopping or broken off: another attempt may reach another grader, or this one later."""
    return isinstance(error, grpc.RpcError) and error.code() not in (*_REFUSED, grpc.StatusCode.DEADLINE_EXCEEDED)


def _told(error: grpc.RpcError) -> dict[str, str]:
    return {"code": error.code().name, "details": str(error.details())[:200]}
