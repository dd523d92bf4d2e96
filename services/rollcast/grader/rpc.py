"""The gRPC service Grading: Check, Grade."""

import threading
import time
from typing import NoReturn

import grpc

from rollcast.config.errors import UserError
from rollcast.config.tasks import Grading
from rollcast.grader.turns import NoTurn, Turns
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.sandbox.limits import Limits
from rollcast.telemetry import grader_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.wire import grading_pb2, grading_pb2_grpc


class GradingService(grading_pb2_grpc.GradingServicer):
    """Grades in the sandbox; a request that it cannot grade is INVALID_ARGUMENT
    with one sentence.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        verifiers: Verifiers,
        turns: Turns,
        grading_limits: Grading,
        exporter: Exporter,
    ) -> None:
        """`grading_limits`: limits beyond which a request is refused."""
        self._sandbox = sandbox
        self._verifiers = verifiers
        self._turns = turns
        self._grading_limits = grading_limits
        self._exporter = exporter
        self._imports: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()

    def Check(  # noqa: N802
        self, request: grading_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> grading_pb2.CheckReply:
        """Whether requests of these verifiers with these limits would be graded."""
        self._limits(request.limits, context)
        for verifier in request.verifiers:
            self._check(verifier, context)
        return grading_pb2.CheckReply()

    def Grade(  # noqa: N802
        self, request: grading_pb2.GradeRequest, context: grpc.ServicerContext
    ) -> grading_pb2.GradeReply:
        """The clock of a grading starts when its turn has come."""
        limits = self._limits(request.limits, context)
        self._check(request.verifier, context)
        try:
            completion = request.completion.decode("utf-8", "surrogatepass")
            reference = request.reference.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            self._refuse_request(context, "completion, reference: not UTF-8")
        if not self._sandbox.is_started(request.verifier):
            self.start(request.verifier)
            self._refuse(
                context,
                grpc.StatusCode.UNAVAILABLE,
                "importing",
                f"{request.verifier} is being imported; try again",
            )
        try:
            with self._turns.turn(context.is_active):
                began_at = time.perf_counter()
                grade = self._sandbox.grade(request.verifier, completion, reference, limits=limits)
        except NoTurn as none:
            status = (
                grpc.StatusCode.RESOURCE_EXHAUSTED
                if none.reason == "full"
                else grpc.StatusCode.UNAVAILABLE
            )
            self._refuse(context, status, none.reason, f"no turn: {none.reason}; try again")
        self._exporter.add(grader_metrics.GRADER_GRADINGS, status=grade.status)
        self._exporter.observe(grader_metrics.GRADER_SECONDS, time.perf_counter() - began_at)
        return grading_pb2.GradeReply(
            reward=grade.reward, status=grade.status, reason=grade.reason, failure=grade.failure
        )

    def start(self, verifier: str) -> threading.Thread:
        """Runs in a thread of its own, so that no call waits for it in the place of another
        verifier's.
        """
        with self._lock:
            thread = self._imports.get(verifier)
            if thread is None or not thread.is_alive():
                name = f"import {verifier}"
                thread = threading.Thread(
                    target=self._sandbox.start, args=(verifier,), name=name, daemon=True
                )
                self._imports[verifier] = thread
                thread.start()
            return thread

    def _limits(
        self, request_limits: grading_pb2.GradingLimits, context: grpc.ServicerContext
    ) -> Limits:
        allowed = {
            "deadline_seconds": self._grading_limits.longest_seconds,
            "seconds_per_test": self._grading_limits.seconds_per_test,
            "memory_mib": self._grading_limits.memory_mib,
        }
        for setting, cap in allowed.items():
            value = getattr(request_limits, setting)
            if not 0 < value <= cap:
                self._refuse_request(
                    context,
                    f"tasks.grading.{setting} = {value:g}: this grader allows more than 0 and at "
                    f"most {cap:g}; lower it, or raise it in the grader's run file",
                )
        return Limits(
            request_limits.deadline_seconds,
            request_limits.seconds_per_test,
            request_limits.memory_mib << 20,
        )

    def _check(self, verifier: str, context: grpc.ServicerContext) -> None:
        try:
            # Characters of a verifier's name: a path and a function's
            sandboxed = self._verifiers.find(verifier[:1_000]).sandboxed
        except UserError as error:
            self._refuse_request(context, f"{error}, or install it in the grader as well")
        if not sandboxed:
            self._refuse_request(
                context, f"verifier {verifier}: it needs no sandbox; generators grade it themselves"
            )

    def _refuse_request(self, context: grpc.ServicerContext, message: str) -> NoReturn:
        self._refuse(context, grpc.StatusCode.INVALID_ARGUMENT, "request", message)

    def _refuse(
        self, context: grpc.ServicerContext, status: grpc.StatusCode, reason: str, message: str
    ) -> NoReturn:
        self._exporter.add(grader_metrics.GRADER_REFUSED, reason=reason)
        context.abort(status, message)
