"""The client of a few lines: against the real service, and against a network that fails.

test_followed_trainers.py follows trainers for longer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollcast.push import MAX_KEPT, Pusher
from testkit.forecaster.recorded_run import record
from testkit.forecaster.service_process import Service, running
from tests.push.logging_trainer import LoggingTrainer
from tests.push.served import TOKEN, pusher_of, served


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One for all: each test pushes runs of its own."""
    folder = tmp_path_factory.mktemp("shared")
    with running(served(folder), folder) as started:
        yield started


def test_what_is_logged_is_pushed_and_the_forecast_comes_back(service: Service) -> None:
    pusher = pusher_of(service, "logged", metric="val-core/acc", budget=580.0, worth=0.01)
    told: dict[str, float] = {}
    for reading in record()[1:12]:
        told = pusher.log({"val-core/acc": reading.pass_rate, "loss": 1.0}, step=reading.step)
    assert pusher.log({"loss": 1.0}, step=999) == {}
    said = service.forecast("logged")
    assert said is not None
    assert (said["num_points"], said["end"]["compute"]) == (11, 580.0)
    assert told["rollcast/ceiling"] == pytest.approx(said["asymptote"]["q50"])
    assert told["rollcast/end_low"] == pytest.approx(said["end"]["q05"], abs=0.01)
    assert (pusher.failures, pusher.dropped) == (0, 0)
    assert pusher.headline
    assert pusher.reason


def test_points_that_could_not_be_sent_come_with_the_next_one(service: Service) -> None:
    pusher = pusher_of(service, "late")
    right, pusher._url = pusher._url, "http://127.0.0.1:9/api/push"
    for reading in record()[1:6]:
        assert pusher.push(reading.step, reading.pass_rate) == {}
    assert pusher.failures == 5
    assert "refused" in pusher.last_failure
    pusher._url = right
    assert pusher.push(60, 0.5)
    assert service.wait_points(6, "late")["num_points"] == 6


def test_a_forecaster_that_hangs_costs_the_trainer_its_deadline_and_no_more() -> None:
    """It answers one byte a second: each read of the socket succeeds,
    the whole answer never comes.
    """
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection:
                for byte in b"HTTP/1.1 200 OK\r\n" * 20:  # more than a minute
                    try:
                        connection.sendall(bytes([byte]))
                    except OSError:
                        return
                    if ended.wait(0.2):
                        return

        thread = threading.Thread(target=trickle, daemon=True)
        thread.start()
        pusher = Pusher(
            f"http://127.0.0.1:{listener.getsockname()[1]}",
            "theirs",
            token="x",
            timeout_seconds=0.5,
        )
        begun = time.monotonic()
        assert pusher.push(1, 0.5) == {}
        assert pusher.push(2, 0.5) == {}
        assert time.monotonic() - begun < 30
        assert pusher.failures == 2
        assert pusher.last_failure in ("no answer within 0.5 s", "the last push has not ended")
        ended.set()
        thread.join(15)


def test_what_is_no_pass_rate_is_dropped_counted_and_holds_up_nothing(service: Service) -> None:
    pusher = pusher_of(service, "odd")
    for value in (float("nan"), 45.0, -1.0):
        assert pusher.push(1, value) == {}
    assert pusher.log({"eval_reward": "high"}, step=1) == {}
    assert (pusher.failures, pusher.dropped) == (4, 4)
    assert pusher.push(2, 0.5)
    assert pusher.push(3, 0.5, compute=-1.0) == {}
    assert pusher.last_failure.startswith("status 422")
    assert pusher.push(4, 0.5)


def test_numbers_of_other_libraries_are_sent_and_what_json_cannot_write_blocks_nothing(
    service: Service,
) -> None:
    pusher = pusher_of(service, "numbers", worth=np.float32(0.01))
    pusher.budget = np.float32(100)  # type: ignore[assignment]
    nan, none = float("nan"), None
    odd: list[tuple[Any, Any, dict[str, Any]]] = [
        (1, none, {}), (1, nan, {}), (nan, 0.5, {}), (float("inf"), 0.5, {}), ("one", 0.5, {}), (1,
            1j, {}),
        (1, np.array([0.1, 0.2]), {}), (1, 0.5, {"compute": nan}), (1, 0.5, {"compute": "much"}),
        (1, 0.5, {"standard_error": np.float32("inf")}),
    ]  # fmt: skip
    for step, pass_rate, more in odd:
        assert pusher.push(step, pass_rate, **more) == {}
    assert (pusher.failures, pusher.dropped) == (len(odd), len(odd))
    arrays: dict[str, Any] = {"compute": np.float32(3.0), "standard_error": np.array(0.01)}
    two: list[Any] = [np.int64(2), np.float32(0.5)]
    assert pusher.push(*two, **arrays)
    assert pusher.log({"eval_reward": np.float16(0.25)}, step=4)
    points = service.client.get("/api/runs/numbers/points").json()["points"]
    assert [(p["step"], p["pass_rate"], p["compute"]) for p in points] == [
        (2, 0.5, 3.0),
        (4, 0.25, 4.0),
    ]
    assert pusher.dropped == len(odd)


@pytest.mark.parametrize("first", [50, 55], ids=["the same steps", "steps between the old ones"])
def test_a_rerun_under_an_old_name_is_warned_and_not_stopped(
    first: int, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """The old run has spent its budget, so all that is said of it is to stop."""
    run = f"rerun from {first}"
    points = [{"step": step, "pass_rate": 0.8 - 30 / step} for step in range(50, 1000, 50)]
    body = {"run": run, "budget": 950, "points": points}
    old = service.client.post(
        "/api/push", json=body, headers={"authorization": f"Bearer {TOKEN}"}
    ).json()
    assert (old["advice"], old["step"]) == ("stop", 950)
    rerun = pusher_of(service, run, budget=950.0)
    for step in range(first, first + 400, 100):
        assert rerun.push(step, 0.1)["rollcast/stop"] == 1.0
        assert not rerun.says_stop
    warnings = [
        record.getMessage()
        for record in caplog.records
        if "push a rerun under another name" in record.msg
    ]
    assert len(warnings) == (1 if first == 50 else 0)
    continued = pusher_of(service, run, budget=950.0, incarnation=2)
    assert continued.push(320, 0.7)
    told = service.forecast(run)
    assert told is not None
    assert (told["step"], told["pass_rate"]) == (320, 0.7)
    assert told["num_lost"] >= 13, "what was evaluated beyond the restart"


def test_an_answer_that_is_none_of_a_forecaster_ends_no_training() -> None:
    none: list[Any] = [[], {"metrics": {}}, {"metrics": 3, "advice": "stop"}]
    for answer in none:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def answered(
                text: str = json.dumps(answer), listener: socket.socket = listener
            ) -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(
                        f"HTTP/1.0 200 OK\r\ncontent-length: {len(text)}\r\n\r\n{text}".encode()
                    )

            thread = threading.Thread(target=answered, daemon=True)
            thread.start()
            pusher = Pusher(f"http://127.0.0.1:{listener.getsockname()[1]}", "theirs", token="x")
            assert pusher.push(1, 0.5) == {}
            assert pusher.last_failure == "the response did not come from a Rollcast forecaster"
            thread.join(5)


def test_what_waits_is_bounded() -> None:
    pusher = Pusher("http://127.0.0.1:9", "theirs", token="x")
    for step in range(MAX_KEPT + 3):
        pusher._waiting.append({"step": step}) if step < MAX_KEPT else pusher.push(step, 0.5)
    assert len(pusher._waiting) == MAX_KEPT
    assert pusher.dropped == 3


def test_it_needs_the_standard_library_alone() -> None:
    code = (
        "import sys, rollcast.push; print([name for name in ('numpy', 'httpx', 'pydantic', "
        "'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


def test_an_address_that_is_none_is_one_sentence() -> None:
    with pytest.raises(ValueError, match="url: 'file:///etc/passwd' is not the address"):
        Pusher("file:///etc/passwd", "theirs")


PAGE = (Path(__file__).parents[2] / "docs" / "push.md").read_text()


def block_with(words: str, service: Service, run: str) -> str:
    """The block of docs/push.md that says so, with the service's address and a run of its own in
    their places.
    """
    blocks = re.findall(
        r"^```python\n(.*?)^```|^((?:    [^\n]*\n)+)", PAGE, re.MULTILINE | re.DOTALL
    )
    (found,) = [fenced or indented for fenced, indented in blocks if words in fenced + indented]
    assert "http://forecaster:8400" in found
    assert "my-run" in found
    return (
        str(found)
        .replace("http://forecaster:8400", f"http://127.0.0.1:{service.port}")
        .replace("my-run", run)
    )


def test_the_documents_lines_for_trl_and_transformers_run(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trainer of TRL is one of transformers, whose handler, state and control stand in
    for both.
    """
    monkeypatch.setenv("ROLLCAST_PUSH_TOKEN", TOKEN)
    trainer = LoggingTrainer([0.3, 0.4, 0.5, 0.55, 0.58])
    exec(block_with("follow(trainer, pusher)", service, "of-trl"), {"trainer": trainer})
    assert ["rollcast/ceiling" in logs for logs in trainer.seen] == [False] * 4 + [True]
    said = service.forecast("of-trl")
    assert said is not None
    assert (said["num_points"], said["end"]["compute"]) == (5, 50.0)


def test_the_documents_lines_for_other_loggers_run(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLLCAST_PUSH_TOKEN", TOKEN)
    namespace: dict[str, Any] = {}
    exec(block_with("pusher.log", service, "of-verl"), namespace)
    assert namespace["pusher"].failures == 0
    assert namespace["told"]["rollcast/wait_evaluations"] == 4, "of the five that a forecast needs"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_documents_line_for_any_other_language_runs(service: Service) -> None:
    command = ["bash", "-c", block_with("curl ", service, "of-curl")]
    environment = os.environ | {"ROLLCAST_PUSH_TOKEN": TOKEN}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    answer = json.loads(done.stdout)
    assert "error" not in answer
    assert (answer["run"], answer["new"], answer["step"]) == ("of-curl", 1, 100)
    assert (
        "of-curl"
        in service.client.get("/api/runs", headers={"Authorization": f"Bearer {TOKEN}"}).text
    )
