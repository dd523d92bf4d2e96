"""`rollcast up` as a user meets it, with the least that a run file says.

Started with ten lines, Ctrl-C, continued with the command it prints, a service killed, ended.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
from contextlib import closing
from pathlib import Path

import grpc
import psutil
import pytest
import redis
import yaml

from rollcast.config.run import load_run_config
from rollcast.connections.redis import connect
from rollcast.wire import weights_pb2
from rollcast.wire.version import WIRE_VERSION
from rollcast.wire.weights_pb2_grpc import WeightSyncStub
from testkit.forked_programs import ForkedPrograms
from testkit.system.command import goes_on, last_step, read_output, rollcast, services
from testkit.system.harness import wait_for
from tests.system.ten_lines import STEPS, SUMS, check_a_finished_run, minimal_settings

pytestmark = [pytest.mark.system, pytest.mark.engine, pytest.mark.timeout(900)]

STOP_AT = 2


def test_ten_lines_run_are_stopped_by_ctrl_c_and_continued_to_the_end(
    tmp_path: Path, model_folder: Path, programs: ForkedPrograms
) -> None:
    settings = minimal_settings(tmp_path, model_folder)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    folder = tmp_path / "runs" / settings["run"]

    with rollcast(tmp_path, "up", "--config", "run.yaml", programs=programs) as up:
        wait_for(
            lambda: goes_on(up, tmp_path) and last_step(folder) >= STOP_AT, 300, "its first steps"
        )
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
        assert up.wait(100) == 130, read_output(tmp_path)
        assert not [process for process in family if process.is_running()]
    first = read_output(tmp_path)
    assert "live page: http://127.0.0.1:" in first
    assert "step 0: pass rate" in first
    check_what_was_filled_in(first, folder, model_folder)
    stopped_at = last_step(folder)
    assert STOP_AT <= stopped_at < STEPS

    *_, command = [
        line for line in first.splitlines() if line.startswith("stopped; continue with: ")
    ]
    _, *arguments = shlex.split(command.removeprefix("stopped; continue with: "))
    with rollcast(tmp_path, *arguments, programs=programs) as up:
        wait_for(
            lambda: goes_on(up, tmp_path) and last_step(folder) > stopped_at,
            300,
            "a step after the stop",
        )
        services(up, tmp_path)["generator-1"].kill()
        family = psutil.Process(up.pid).children(recursive=True)
        assert up.wait(300) == 0, read_output(tmp_path)
        assert not [process for process in family if process.is_running()]
    assert "generator-1 killed by SIGKILL; starting it again" in read_output(tmp_path)
    check_a_finished_run(tmp_path, folder, stopped_at)


def check_that_strangers_stay_out(folder: Path) -> None:
    """Of Redis without the password, and of the trainer without the token, which says where the
    token is.
    """
    config = load_run_config(folder / "run.json")
    assert (folder / "run.json").stat().st_mode & 0o077 == 0
    logs = [folder / "logs", *(folder / "logs").iterdir()]
    assert not any(path.stat().st_mode & 0o007 for path in (folder, folder / "tasks.jsonl", *logs))
    given = load_run_config(folder / "up.json")
    assert (given.redis.password, given.rpc.token) == (None, None)
    with closing(connect(config.redis)) as client:
        assert client.ping()
    stranger = config.redis.model_copy(update={"password": None})
    with closing(connect(stranger)) as client, pytest.raises(redis.RedisError):
        client.ping()
    announce = weights_pb2.Announce(
        generator="stranger", num_workers=1, slots=1, lm_head="fp32", wire=WIRE_VERSION
    )
    with grpc.insecure_channel(f"127.0.0.1:{config.rpc.port}") as channel:
        stream = WeightSyncStub(channel).Sync(
            iter([weights_pb2.FromGenerator(announce=announce)]), timeout=60
        )
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
