"""KEDA's external scaler: an `external-push` trigger asks it for the number of generators.

The metric is the number itself and its target is 1. KEDA makes an HPA with metric type
AverageValue, which asks for ceil(number / 1) pods. Before the first measurement the metric is the
present number: KEDA would count an error, and scale a ScaledObject with a `fallback` to that. The
answer is UNAVAILABLE only while no number is known. IsActive is false only once the run has ended:
a run must never be scaled to zero because it cannot be measured.
"""

import threading
from collections.abc import Iterator

import grpc

from rollcast.autoscaler.board import DecisionBoard
from rollcast.telemetry import autoscaler_metrics
from rollcast.wire import externalscaler_pb2, externalscaler_pb2_grpc

METRIC_NAME = autoscaler_metrics.GENERATORS_DESIRED.name
MAX_STREAMS = 32
MAX_CALLS = 48
"""Concurrent calls, streams included."""


class ExternalScaler(externalscaler_pb2_grpc.ExternalScalerServicer):
    """Answers from the board."""

    def __init__(self, board: DecisionBoard) -> None:
        self._board = board
        self._streams = threading.BoundedSemaphore(MAX_STREAMS)

    def IsActive(  # noqa: N802
        self, request: externalscaler_pb2.ScaledObjectRef, context: grpc.ServicerContext
    ) -> externalscaler_pb2.IsActiveResponse:
        return self._is_active()

    def StreamIsActive(  # noqa: N802
        self, request: externalscaler_pb2.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[externalscaler_pb2.IsActiveResponse]:
        """Answer immediately and at every change of the number, so that KEDA reads it before its
        next poll.
        """
        if not self._streams.acquire(blocking=False):
            context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"more than {MAX_STREAMS} streams; try again later",
            )
        try:
            sequence = -1
            while context.is_active() and not self._board.closed:
                # How soon a stream whose client went away is noticed
                newest = self._board.wait_newer(sequence, 1.0)
                if newest > sequence:
                    sequence = newest
                    yield self._is_active()
        finally:
            self._streams.release()

    def GetMetricSpec(  # noqa: N802
        self, request: externalscaler_pb2.ScaledObjectRef, context: grpc.ServicerContext
    ) -> externalscaler_pb2.GetMetricSpecResponse:
        spec = externalscaler_pb2.MetricSpec(
            metricName=METRIC_NAME, targetSize=1, targetSizeFloat=1.0
        )
        return externalscaler_pb2.GetMetricSpecResponse(metricSpecs=[spec])

    def GetMetrics(  # noqa: N802
        self, request: externalscaler_pb2.GetMetricsRequest, context: grpc.ServicerContext
    ) -> externalscaler_pb2.GetMetricsResponse:
        if request.metricName != METRIC_NAME:
            reason = f"metricName {request.metricName[:100]!r}: only {METRIC_NAME} is served"
            context.abort(grpc.StatusCode.NOT_FOUND, reason)
        target = self._board.target
        if target is None:
            reason = "neither the Deployment nor a metrics page gives the number of generators"
            context.abort(grpc.StatusCode.UNAVAILABLE, reason)
            raise AssertionError("abort raises")
        value = externalscaler_pb2.MetricValue(
            metricName=METRIC_NAME, metricValue=target, metricValueFloat=target
        )
        return externalscaler_pb2.GetMetricsResponse(metricValues=[value])

    def _is_active(self) -> externalscaler_pb2.IsActiveResponse:
        return externalscaler_pb2.IsActiveResponse(result=self._board.target != 0)
