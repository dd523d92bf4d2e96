"""`rollcast up` as a user meets it, with the least that a run file says.

Started with ten lines, Ctrl-C, continued with the command it prints, a service killed, ended; then resumed with other
settings.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import httpx
import psutil
import pytest
import redis
import yaml

from rollcast.config.run import load_run_config
from rollcast.connections.redis import connect
from rollcast.local.monitor import SCRAPE_SECONDS, prometheus_spec
from rollcast.local.ports import free_port
from rollcast.local.process import Service
from rollcast.tasks.arithmetic import prompt_text
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION
from rollcast.wire.weights_pb2_grpc import WeightSyncStub
from testkit.forecaster.prometheus_server import PROMETHEUS
from testkit.forked_programs import ForkedPrograms
from testkit.monitoring.grafana import FORECASTER, ask, load, panels, query
from testkit.monitoring.recording import Recording
from testkit.system.audit import check_every_task_once, read_lines
from testkit.system.command import goes_on, last_step, rollcast, said, services
from testkit.system.harness import wait_for

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

MINIMAL = Path(__file__).parents[2] / "configs" / "minimal.yaml"
STEPS, STOP_AT, EVERY = 12, 2, 6
MORE = 16
"""With other settings: enough for a Prometheus to read the trainer's page some times."""
BATCH = {"prompts_per_step": 8, "rollouts_per_prompt": 8}
"""Ten times fewer than the paper's, which would fit as well: 768 rollouts a step take these cores half a minute."""
SUMS = [(a, b) for a in range(20) for b in range(8)]


def test_ten_lines_run_are_stopped_by_ctrl_c_continued_to_the_end_and_go_on(
    tmp_path: Path, model_folder: Path, programs: ForkedPrograms
) -> None:
    settings = minimal_settings(tmp_path, model_folder)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "runs" / settings["run"]

    with rollcast(tmp_path, "up", "--config", "run.yaml", programs=programs) as up:
        wait_for(lambda: goes_on(up, tmp_path) and last_step(folder) >= STOP_AT, 300, "its first steps")
        assert sorted(services(up, tmp_path)) == [
            "forecaster",
            "generator-0",
            "generator-1",
            "redis",
            "trainer 0",
            "trainer 1",
        ]
        check_that_strangers_stay_out(folder)
        family = psutil.Process(up.pid).children(recursive=True)
        up.send_signal(signal.SIGINT)
        assert up.wait(100) == 130, said(tmp_path)
        assert not [process for process in family if process.is_running()]
    first = said(tmp_path)
    assert "live page: http://127.0.0.1:" in first
    assert "step 0: pass rate" in first
    check_what_was_filled_in(first, folder, model_folder)
    stopped_at = last_step(folder)
    assert STOP_AT <= stopped_at < STEPS

    *_, command = [line for line in first.splitlines() if line.startswith("stopped; continue with: ")]
    _, *arguments = shlex.split(command.removeprefix("stopped; continue with: "))
    with rollcast(tmp_path, *arguments, programs=programs) as up:
        wait_for(lambda: goes_on(up, tmp_path) and last_step(folder) > stopped_at, 300, "a step after the stop")
        services(up, tmp_path)["generator-1"].kill()
        family = psutil.Process(up.pid).children(recursive=True)
        assert up.wait(300) == 0, said(tmp_path)
        assert not [process for process in family if process.is_running()]
    assert "generator-1 killed by SIGKILL; starting it again" in said(tmp_path)
    check_a_finished_run(tmp_path, folder, stopped_at)

    settings["budget"]["steps"] = STEPS + MORE
    settings["recipe"] = BATCH | {"optimizer": {"learning_rate": 1e-6}}
    settings["local"] = {"generators": 1, "trainer_ranks": 1}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "said").unlink()
    with rollcast(tmp_path, "up", "--config", "run.yaml", "--resume", "--monitor", programs=programs) as up:
        assert up.wait(600) == 0, said(tmp_path)
    if PROMETHEUS is not None:
        check_what_its_prometheus_kept(folder, PROMETHEUS)
    lines = [line.partition(" ")[2] for line in said(tmp_path).splitlines() if "resumed with another setting" in line]
    assert lines == [
        "resumed with another setting: recipe.optimizer.learning_rate 5e-07 -> 1e-06: the schedule goes on at its step "
        "with the new one",
        f"resumed with another setting: budget.steps {STEPS} -> {STEPS + MORE}",
        "resumed with another setting: local.generators 2 -> 1",
        "resumed with another setting: local.trainer_ranks 2 -> 1",
    ]
    rates = [line["learning_rate"] for line in read_lines(folder / "steps.jsonl")]
    of_old = [step / 100 * 5e-7 for step in range(1, STEPS + 1)]
    of_new = [step / 100 * 1e-6 for step in range(STEPS + 1, STEPS + MORE + 1)]
    assert rates == pytest.approx([*of_old, *of_new]), "those of the last steps are of the new one"


def minimal_settings(folder: Path, model_folder: Path) -> dict[str, Any]:
    """The shipped minimal file on the tests' model and sums: small batches, two of each service, three points."""
    text = MINIMAL.read_text()
    assert len(text.splitlines()) <= 10
    settings: dict[str, Any] = yaml.safe_load(text)
    settings["model"]["path"] = str(model_folder)
    settings["tasks"]["dataset"]["verifier"] = "arithmetic"  # what this model was taught to write
    settings["tasks"]["evaluation"] = {"every_steps": EVERY, "rollouts_per_prompt": 4}
    settings["recipe"] = BATCH
    settings["budget"]["steps"] = STEPS
    settings |= {"local": {"generators": 2, "trainer_ranks": 2}, "forecaster": {"http_port": 0}}
    rows = [json.dumps({"prompt": prompt_text(a, b), "answer": str(a + b)}) for a, b in SUMS]
    (folder / settings["tasks"]["dataset"]["path"]).write_text("\n".join(rows))
    return settings


def check_that_strangers_stay_out(folder: Path) -> None:
    """Of Redis without the password, and of the trainer without the token, which says where the token is."""
    config = load_run_config(folder / "run.json")
    assert (folder / "run.json").stat().st_mode & 0o077 == 0
    given = load_run_config(folder / "up.json")
    assert (given.redis.password, given.rpc.token) == (None, None)
    with closing(connect(config.redis)) as client:
        assert client.ping()
    stranger = config.redis.model_copy(update={"password": None})
    with closing(connect(stranger)) as client, pytest.raises(redis.RedisError):
        client.ping()
    announce = weights_pb2.Announce(generator="stranger", num_workers=1, slots=1, lm_head="fp32", wire=WIRE_VERSION)
    with grpc.insecure_channel(f"127.0.0.1:{config.rpc.port}") as channel:
        stream = WeightSyncStub(channel).Sync(iter([weights_pb2.FromGenerator(announce=announce)]), timeout=60)
        with pytest.raises(grpc.RpcError, match=re.escape(f"rpc.token in {folder / 'run.json'}")):
            next(stream)


def check_what_was_filled_in(first: str, folder: Path, model_folder: Path) -> None:
    assert "filled in: model.max_length" in first
    config = load_run_config(folder / "run.json")
    own = json.loads((model_folder / "config.json").read_text())["max_position_embeddings"]
    assert config.model.max_length == own
    assert config.recipe.max_prompt_tokens + config.recipe.max_completion_tokens == own
    assert config.recipe.length_control.kind == "none"
    assert config.tasks.evaluation.num_prompts == len(SUMS) // 5


def check_what_its_prometheus_kept(folder: Path, prometheus: str) -> None:
    """Every query of its dashboards and every rule, asked after the run: nothing of the run waits for the answers."""
    monitor, config = folder / "monitor", load_run_config(folder / "run.json")
    # The port of then may be another run's by now, whose Prometheus would answer instead.
    local = config.local.model_copy(update={"prometheus_port": free_port("127.0.0.1")})
    config = config.model_copy(update={"local": local})
    server = Service(prometheus_spec(config.run_folder, config.local.prometheus_port, prometheus))
    url = f"http://127.0.0.1:{config.local.prometheus_port}"
    began = read_lines(folder / "evaluations.jsonl")[-1]["at"] - 30.0
    server.start()
    try:
        wait_for(lambda: rules_of(url) and {rule["health"] for rule in rules_of(url)} == {"ok"}, 60, "all rules hold")
        (read,) = query(url, "query_range", query="rollcast_trainer_step", start=began, end=time.time(), step=1.0).rows
        recording = Recording(
            url, "", (config.run,), began=began, at=read[1][-1][0], namespace="", scrape_seconds=SCRAPE_SECONDS
        )
        boards = sorted((monitor / "dashboards").glob("*.json"))
        assert len(boards) == 5
        for board in boards:
            asked = [target for panel in panels(load(board)) for target in panel["targets"]]
            answers = [ask(target, recording, 0.5) for target in asked if target["datasource"]["uid"] != FORECASTER]
            found = [labels for answer in answers for labels, _ in answer.rows]
            assert found, f"{board.name}: none of {len(answers)} queries finds the run"
            assert not [labels for labels in found if "namespace" in labels]
    finally:
        server.terminate()
        wait_for(lambda: server.poll() is not None, 30, "it stops when it is asked to")


def rules_of(url: str) -> list[dict[str, Any]]:
    try:
        groups = httpx.get(f"{url}/api/v1/rules", timeout=10.0).json()["data"]["groups"]
    except (httpx.HTTPError, ValueError):
        return []
    return [rule for group in groups for rule in group["rules"]]


def check_a_finished_run(root: Path, folder: Path, stopped_at: int) -> None:
    assert [line["step"] for line in read_lines(folder / "steps.jsonl")] == list(range(1, STEPS + 1))
    evaluated = [line["step"] for line in read_lines(folder / "evaluations.jsonl")]
    # A stop while the weights of EVERY are judged loses that evaluation; those it goes on with are judged instead.
    assert sorted(set(evaluated)) in ([0, EVERY, STEPS], [0, max(EVERY, stopped_at), STEPS])
    assert evaluated[-1] == STEPS
    check_every_task_once(read_lines(folder / "tasks.jsonl"))
    with closing(sqlite3.connect(folder / "forecasts.sqlite")) as forecasts:
        (seen,) = forecasts.execute("SELECT MAX(step) FROM evaluations").fetchone()
    assert seen == STEPS, "the forecaster saw the last evaluation"
    result = json.loads((folder / "result.json").read_text())
    assert result["num_evaluations"] == len(set(evaluated))
    assert f"the end: pass rate {result['measured']:.3f}" in said(root)
    if result["frozen"] is not None:  # its moment is a few seconds long here
        assert 0.5 * STEPS <= result["frozen"]["step"] <= 0.6 * STEPS
    assert (folder / "model" / "model.safetensors").exists()
