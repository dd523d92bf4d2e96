"""KEDA, called as it calls (pkg/scalers/external_scaler.go), by a client that is not ours."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.keda import MAX_CALLS, ExternalScaler
from rollcast.config.connections import Rpc
from rollcast.connections.grpc import start_server
from rollcast.wire import externalscaler_pb2 as pb
from rollcast.wire.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server

OBJECT = pb.ScaledObjectRef(
    name="generators",
    namespace="train",
    scalerMetadata={"scalerAddress": "autoscaler:8402", "run": "demo"},
)
SERVICE = "/externalscaler.ExternalScaler/"


def serve(board: DecisionBoard, port: int = 0) -> tuple[Any, int]:
    return start_server(
        Rpc(bind="127.0.0.1", port=port),
        lambda server: add_ExternalScalerServicer_to_server(ExternalScaler(board), server),
        setting="autoscaler.grpc_port",
        max_calls=MAX_CALLS,
    )


class Keda:
    """What KEDA does with one ScaledObject; the method names on the wire are spelt here, not taken
    from our stub.
    """

    def __init__(self, port: int, retry_seconds: float = 0.2) -> None:
        self.told: list[bool] = []
        """What the stream said, in order: whether generators are needed."""
        self.errors: list[grpc.StatusCode] = []
        self._retry_seconds = retry_seconds
        self._closed = threading.Event()
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.spec = self._unary("GetMetricSpec", pb.ScaledObjectRef, pb.GetMetricSpecResponse)
        self.metrics = self._unary("GetMetrics", pb.GetMetricsRequest, pb.GetMetricsResponse)
        self.is_active = self._unary("IsActive", pb.ScaledObjectRef, pb.IsActiveResponse)
        self.stream = self.channel.unary_stream(
            SERVICE + "StreamIsActive",
            pb.ScaledObjectRef.SerializeToString,
            pb.IsActiveResponse.FromString,
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _unary(self, method: str, request: Any, response: Any) -> Callable[..., Any]:
        return self.channel.unary_unary(
            SERVICE + method, request.SerializeToString, response.FromString
        )

    def desired(self) -> int:
        """Pods that the HPA would ask for now."""
        (spec,) = self.spec(OBJECT, timeout=5).metricSpecs
        target = spec.targetSizeFloat if spec.targetSizeFloat > 0 else float(spec.targetSize)
        request = pb.GetMetricsRequest(scaledObjectRef=OBJECT, metricName=spec.metricName)
        (metric,) = self.metrics(request, timeout=5).metricValues
        value = (
            metric.metricValueFloat if metric.metricValueFloat > 0 else float(metric.metricValue)
        )
        assert metric.metricName == spec.metricName
        assert metric.metricValue == metric.metricValueFloat, "older KEDAs read the whole number"
        assert self.is_active(OBJECT, timeout=5).result is (value > 0)
        return math.ceil(value / target)

    def follow(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self.channel.close()
        if self._thread.is_alive():
            self._thread.join(10)

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                for answer in self.stream(OBJECT):
                    self.told.append(answer.result)
            except grpc.RpcError as error:
                self.errors.append(error.code())
            except ValueError:
                return  # the channel was closed
            self._closed.wait(self._retry_seconds)


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
