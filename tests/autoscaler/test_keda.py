"""The external scaler, called as KEDA calls it (pkg/scalers/external_scaler.go), by a client that is not ours.

KEDA: GetMetricSpec when it makes the HPA; StreamIsActive kept open, opened again 2 s after it ended; every time the HPA
asks, GetMetrics with the name of the spec and then IsActive. The value is metricValueFloat if that is above 0, else
metricValue; the HPA wants ceil(value / target) pods.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.keda import MAX_CALLS, MAX_STREAMS, ExternalScaler
from rollcast.config.services import Rpc
from rollcast.connections.grpc import start_server
from rollcast.wire import externalscaler_pb2 as pb
from rollcast.wire.externalscaler_pb2_grpc import add_ExternalScalerServicer_to_server

OBJECT = pb.ScaledObjectRef(
    name="generators", namespace="train", scalerMetadata={"scalerAddress": "autoscaler:8402", "run": "demo"}
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
    """What KEDA does with one ScaledObject; the method names on the wire are spelt here, not taken from our stub."""

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
            SERVICE + "StreamIsActive", pb.ScaledObjectRef.SerializeToString, pb.IsActiveResponse.FromString
        )
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def _unary(self, method: str, request: Any, response: Any) -> Callable[..., Any]:
        return self.channel.unary_unary(SERVICE + method, request.SerializeToString, response.FromString)

    def desired(self) -> int:
        """Pods that the HPA would ask for now."""
        (spec,) = self.spec(OBJECT, timeout=5).metricSpecs
        target = spec.targetSizeFloat if spec.targetSizeFloat > 0 else float(spec.targetSize)
        request = pb.GetMetricsRequest(scaledObjectRef=OBJECT, metricName=spec.metricName)
        (metric,) = self.metrics(request, timeout=5).metricValues
        value = metric.metricValueFloat if metric.metricValueFloat > 0 else float(metric.metricValue)
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


@pytest.fixture
def board() -> Iterator[DecisionBoard]:
    board = DecisionBoard()
    yield board
    board.close()


def test_the_hpa_that_keda_makes_asks_for_the_number(board: DecisionBoard) -> None:
    server, port = serve(board)
    keda = Keda(port)
    try:
        for number in (1, 3, 64, 1000):
            board.show(number)
            assert keda.desired() == number
    finally:
        keda.close()
        server.stop(0).wait(5)


def test_while_the_number_is_not_known_there_is_no_value_but_never_zero(board: DecisionBoard) -> None:
    server, port = serve(board)
    keda = Keda(port)
    try:
        with pytest.raises(grpc.RpcError) as refused:
            keda.desired()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert keda.is_active(OBJECT, timeout=5).result
        with pytest.raises(grpc.RpcError) as unknown:
            keda.metrics(pb.GetMetricsRequest(scaledObjectRef=OBJECT, metricName="cpu"), timeout=5)
        assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    finally:
        keda.close()
        server.stop(0).wait(5)


def test_a_stream_is_told_of_every_change_stays_open_while_idle_and_comes_back(board: DecisionBoard) -> None:
    server, port = serve(board)
    keda = Keda(port)
    try:
        keda.follow()
        eventually(lambda: len(keda.told) == 1)
        board.show(2)
        eventually(lambda: len(keda.told) == 2)
        board.show(2)
        time.sleep(3.5)
        assert len(keda.told) == 2, "no change, nothing said"
        assert keda.errors == [], "an idle stream is left open"
        board.show(5)
        eventually(lambda: len(keda.told) == 3)
        assert keda.desired() == 5

        server.stop(0).wait(5)
        eventually(lambda: keda.errors)
        server, _ = serve(board, port)
        eventually(lambda: len(keda.told) == 4)
        board.show(6)
        eventually(lambda: len(keda.told) == 5)
        assert keda.desired() == 6
    finally:
        keda.close()
        server.stop(0).wait(5)


def test_the_end_of_the_run_is_told_at_once_and_so_is_another_run(board: DecisionBoard) -> None:
    server, port = serve(board)
    keda = Keda(port)
    try:
        keda.follow()
        board.show(5)
        eventually(lambda: keda.told and keda.desired() == 5)
        assert set(keda.told) == {True}
        board.show(0)
        eventually(lambda: keda.told[-1] is False)
        assert keda.desired() == 0, "an HPA whose pods are not gone yet does not raise them again"
        board.show(2)
        eventually(lambda: keda.told[-1] is True)
        assert keda.desired() == 2
    finally:
        keda.close()
        server.stop(0).wait(5)


def test_streams_are_bounded_and_a_client_that_went_away_frees_its_place(board: DecisionBoard) -> None:
    server, port = serve(board)
    board.show(1)
    keda = Keda(port)
    try:
        streams = [keda.stream(OBJECT) for _ in range(MAX_STREAMS)]
        with ThreadPoolExecutor(MAX_STREAMS) as readers:
            assert all(answer.result for answer in readers.map(next, streams))
        with pytest.raises(grpc.RpcError) as refused:
            next(keda.stream(OBJECT))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert keda.desired() == 1, "calls beside the streams are answered"
        for stream in streams:
            stream.cancel()

        def has_a_place() -> bool:
            try:
                return bool(next(keda.stream(OBJECT)).result)
            except grpc.RpcError:
                return False

        eventually(has_a_place)
    finally:
        keda.close()
        server.stop(0).wait(5)
