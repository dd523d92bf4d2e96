"""Whether a run has ended, of which nothing but its Jobs and its Deployment can be seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kubernetes")

from tests.autoscaler.api_server import JOBS, ApiServer, job
from tests.autoscaler.watching import watching

ENDED = ("Complete", "True")


@pytest.mark.parametrize(
    ("jobs", "replicas", "has_ended"),
    [
        ([job("t", ENDED)], 3, True),
        ([job("t", ENDED)], 0, True),
        ([], 0, True),
        ([], 3, False),
        ([job("t")], 0, False),
        ([job("t", ("Failed", "True"))], 3, False),
        ([job("t", ENDED), job("u")], 0, False),
    ],
    ids=[
        "ended",
        "let-go",
        "removed-since",
        "not-made-yet",
        "goes-on",
        "failed",
        "another-one-runs",
    ],
)
@pytest.mark.parametrize("mode", ["keda", "hpa", "controller"])
def test_a_restarted_autoscaler_neither_wakes_generators_nor_lets_those_of_a_run_at_work_go(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    jobs: list[dict[str, Any]],
    replicas: int,
    has_ended: bool,
) -> None:
    with ApiServer() as server:
        server.jobs, server.replicas = jobs, replicas
        loop, board = watching(server, tmp_path, monkeypatch, mode, trainer_jobs="a=b")
        for one in jobs:
            one["metadata"]["labels"]["a"] = "b"
        assert loop.let_go_at_end() is has_ended
        for _ in range(2):
            loop.turn()
            assert (board.target == 0) is has_ended
            assert ("the run has ended" in loop.ready()[1]) is has_ended
            if mode == "controller":
                assert server.replicas == (0 if has_ended else max(2, replicas))
            else:
                assert server.replicas == replicas
        loop.close()


def test_what_was_known_of_the_end_holds_while_nobody_answers_and_another_job_takes_it_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer() as server:
        loop, board = watching(server, tmp_path, monkeypatch, "keda", trainer_jobs="a=b")
        done, other = job("t", ENDED), job("u")
        done["metadata"]["labels"]["a"] = other["metadata"]["labels"]["a"] = "b"
        server.jobs = [done]
        loop.turn()
        assert board.target == 0
        server.refuse = {JOBS: 500}
        loop.turn()
        assert board.target == 0
        server.refuse, server.jobs = {}, []
        loop.turn()
        assert board.target == 0, "removed in time"
        server.jobs = [other]
        loop.turn()
        assert board.target == 3, "what the Deployment has; nothing is measured yet"
        server.refuse = {JOBS: 500}
        loop.turn()
        assert board.target == 3
        loop.close()


def test_without_the_jobs_labels_generators_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer() as server:
        server.jobs = [job("t", ENDED)]
        loop, board = watching(server, tmp_path, monkeypatch, "controller")
        loop.turn()
        assert board.target == 3
        assert server.replicas == 3
        assert JOBS not in [path for _, path in server.log]
        loop.close()
