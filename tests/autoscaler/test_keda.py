"""The external scaler, called as KEDA calls it (pkg/scalers/external_scaler.go), by a client that
is not ours.

KEDA: GetMetricSpec when it makes the HPA; StreamIsActive kept open, opened again 2 s after it
ended; every time the HPA asks, GetMetrics with the name of the spec and then IsActive. The value is
metricValueFloat if that is above 0, else metricValue; the HPA wants ceil(value / target) pods.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.keda import MAX_STREAMS
from rollcast.wire import externalscaler_pb2 as pb
from tests.autoscaler.keda import OBJECT, Keda, eventually, serve


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


def test_while_the_number_is_not_known_there_is_no_value_but_never_zero(
    board: DecisionBoard,
) -> None:
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


def test_a_stream_is_told_of_every_change_stays_open_while_idle_and_comes_back(
    board: DecisionBoard,
) -> None:
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


def test_streams_are_bounded_and_a_client_that_went_away_frees_its_place(
    board: DecisionBoard,
) -> None:
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
