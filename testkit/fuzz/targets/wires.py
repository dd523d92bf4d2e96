"""What travels between trainer, generators, graders and KEDA as protobuf."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from rollcast.autoscaler.board import DecisionBoard
from rollcast.autoscaler.keda import METRIC_NAME, ExternalScaler
from rollcast.config.tasks import Grading
from rollcast.grader.rpc import GradingService
from rollcast.grader.turns import Turns
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.codec import decode_group, decode_task, encode_group, encode_task
from rollcast.rollouts.errors import CodecError
from rollcast.rollouts.records import Purpose
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.verifiers import Grade
from rollcast.telemetry.exporter import Exporter
from rollcast.wire import externalscaler_pb2, grading_pb2, rollout_pb2
from testkit.fuzz.message_mutation import change_message
from testkit.fuzz.target import Target, is_message, over_grpc
from testkit.rollouts.episodes import EPISODE_TASK, make_episode
from testkit.rollouts.examples import (
    VERSION,
    make_answer_group,
    make_group,
    make_rollout,
    make_task,
)


class AbortedError(Exception):
    """A refusal over gRPC."""


def abort(*_: object) -> NoReturn:
    raise AbortedError


CONTEXT: Any = SimpleNamespace(abort=abort, is_active=lambda: True)


class GradesNothing:
    """Replaces the sandbox, which is a process."""

    def is_started(self, _verifier: str) -> bool:
        return True

    def grade(self, _verifier: str, _completion: str, _reference: str, **_: object) -> Grade:
        return Grade(1.0, "ok")


def _tasks() -> list[bytes]:
    tasks = [
        make_task(0),
        make_task(3, Purpose.EVAL, eval_step=3),
        make_task(4, episode=EPISODE_TASK),
    ]
    tasks.append(make_task(5, rollouts=[make_rollout(0, 4, partial=True)], first_version=VERSION))
    return [encode_task(task) for task in tasks]


def _groups() -> list[bytes]:
    rng = np.random.default_rng(0)
    task = make_task(4, episode=EPISODE_TASK)
    episodes = [make_episode(rng, 0), make_episode(rng, 1, turns=(1,), reward=0.0)]
    return [
        encode_group(make_group(Claimed(make_task(0), "1-0", VERSION), "a")),
        encode_group(make_answer_group(task, episodes)),
    ]


def _gradings() -> list[bytes]:
    limits = grading_pb2.GradingLimits(deadline_seconds=8, seconds_per_test=4, memory_mib=256)
    request = grading_pb2.GradeRequest(
        verifier="code", completion=b"```python\n1\n```", reference=b"{}", limits=limits
    )
    return [request.SerializeToString()]


@cache
def _exporter() -> Exporter:
    return Exporter("fuzz")


def _grade(request: grading_pb2.GradeRequest) -> object:
    sandbox: Any = GradesNothing()
    turns = Turns(running=1, waiting=1, exporter=_exporter())
    service = GradingService(sandbox, Verifiers(), turns, Grading(), _exporter())
    check = grading_pb2.CheckRequest(verifiers=[request.verifier], limits=request.limits)
    service.Check(check, CONTEXT)
    return service.Grade(request, CONTEXT)


def _scaler_calls() -> list[bytes]:
    about = externalscaler_pb2.ScaledObjectRef(name="s", namespace="n", scalerMetadata={"a": "b"})
    request = externalscaler_pb2.GetMetricsRequest(scaledObjectRef=about, metricName=METRIC_NAME)
    return [request.SerializeToString()]


def _scale(request: externalscaler_pb2.GetMetricsRequest) -> object:
    board = DecisionBoard()
    board.show(3)
    scaler = ExternalScaler(board)
    scaler.IsActive(request.scaledObjectRef, CONTEXT)
    scaler.GetMetricSpec(request.scaledObjectRef, CONTEXT)
    return scaler.GetMetrics(request, CONTEXT)


TARGETS = (
    Target(
        "wire-task",
        _tasks,
        change_message(rollout_pb2.PromptTask),
        is_message(rollout_pb2.PromptTask),
        decode_task,
        (CodecError,),
        ("rollouts.codec", "rollouts.rollout_codec", "rollouts.validation"),
    ),
    Target(
        "wire-group",
        _groups,
        change_message(rollout_pb2.RolloutGroup),
        is_message(rollout_pb2.RolloutGroup),
        decode_group,
        (CodecError,),
        ("rollouts.codec", "rollouts.rollout_codec", "rollouts.validation"),
    ),
    Target(
        "grader-call",
        _gradings,
        change_message(grading_pb2.GradeRequest),
        is_message(grading_pb2.GradeRequest),
        over_grpc(grading_pb2.GradeRequest, _grade),
        (AbortedError,),
        ("grader.rpc",),
    ),
    Target(
        "keda-call",
        _scaler_calls,
        change_message(externalscaler_pb2.GetMetricsRequest),
        is_message(externalscaler_pb2.GetMetricsRequest),
        over_grpc(externalscaler_pb2.GetMetricsRequest, _scale),
        (AbortedError,),
        ("autoscaler.keda",),
    ),
)
