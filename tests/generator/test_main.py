"""What a user gets wrong is one sentence and exit code 2, before anything heavy is started."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from pydantic import SecretStr

from rollcast.config.connections import Rpc
from rollcast.config.resolved import write_resolved
from rollcast.config.run import load_run_config
from rollcast.connections.grpc import start_server
from rollcast.local.ports import free_port
from rollcast.runfolder import folder as run_folder
from rollcast.wire import weights_pb2
from rollcast.wire.weights_pb2_grpc import WeightSyncServicer, add_WeightSyncServicer_to_server
from testkit.forked_programs import ForkedPrograms
from testkit.tiny_model import make_tiny_model

SETTINGS: dict[str, Any] = {
    "run": "main",
    "model": {"path": "model", "max_length": 512},
    "recipe": {
        "length_control": {"kind": "none"},
        "max_prompt_tokens": 100,
        "max_completion_tokens": 100,
        "rollouts_per_prompt": 4,
    },
    "tasks": {"evaluation": {"rollouts_per_prompt": 4}},
}


@dataclass(frozen=True)
class Ended:
    code: int
    said: str


def run_file(folder: Path, generator: dict[str, Any], **sections: Any) -> str:
    config = folder / "run.json"
    config.write_text(
        json.dumps(SETTINGS | {"folder": str(folder / "runs"), "generator": generator} | sections)
    )
    return str(config)


def run_generator(
    programs: ForkedPrograms,
    folder: Path,
    generator: dict[str, Any],
    *arguments: str,
    **sections: Any,
) -> Ended:
    config, log = run_file(folder, generator, **sections), folder / "ended.log"
    process = programs.start(
        "rollcast.generator", ["--config", config, "--name", "x", *arguments], log
    )
    return Ended(process.wait(120), log.read_text())


@pytest.mark.parametrize(
    ("generator", "sentence"),
    [
        (
            {"slots": 3},
            "the rollouts of one prompt stay together, and a generator has generator.slots 3",
        ),
        ({"slots": 8, "cpu": 100_000}, "generator.cpu = 100000: this process may run on"),
        ({"slots": 0}, "generator.slots"),
    ],
)
def test_settings_that_cannot_work(
    tmp_path: Path, programs: ForkedPrograms, generator: dict[str, Any], sentence: str
) -> None:
    done = run_generator(programs, tmp_path, generator)
    assert done.code == 2, done.said
    assert sentence in done.said
    assert "Traceback" not in done.said
    assert not (tmp_path / "runs").exists()


def test_each_generator_of_a_machine_takes_the_next_core(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    done = run_generator(programs, tmp_path, {"slots": 8, "cpu": 0}, "--index", "100000")
    assert done.code == 2, done.said
    assert "generator.cpu = 100000: this process may run on" in done.said


def test_a_port_in_use(tmp_path: Path) -> None:
    """Of a Python that has imported nothing before, as a user's has not."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = run_file(tmp_path, {"slots": 8, "http_port": port})
        command = [sys.executable, "-m", "rollcast.generator", "--config", config, "--name", "x"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert f"generator.http_port = {port}: 127.0.0.1 cannot listen on it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.engine
def test_a_broken_tokenizer_is_one_sentence(tmp_path: Path, programs: ForkedPrograms) -> None:
    make_tiny_model(tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").write_text("[]")
    model = {"path": str(tmp_path / "model"), "max_length": 512, "dtype": "float32"}
    done = run_generator(programs, tmp_path, {"slots": 8}, model=model)
    assert done.code == 2, done.said
    last = done.said.splitlines()[-1]
    assert last.startswith(f"error: model.path = {tmp_path}/model: vLLM cannot serve it (")
    assert "give the folder of a Hugging Face causal LM" in last


@pytest.mark.engine
@pytest.mark.parametrize(
    ("engine", "blamed"),
    [
        (
            {
                "enable_expert_parallel": False,
                "disable_custom_all_reduce": False,
                "enforce_eager": None,
            },
            "",
        ),
        ({"max_num_batched_tokens": 2048}, " with generator.engine (max_num_batched_tokens)"),
    ],
    ids=["defaults", "set"],
)
def test_a_model_that_vllm_cannot_serve_is_one_sentence_with_the_deepest_error(
    engine: dict[str, Any], blamed: str, tmp_path: Path, programs: ForkedPrograms
) -> None:
    """Its kernels on a CPU know no head of 16 numbers.

    `up` writes every default into the file that it reads.
    """
    make_tiny_model(tmp_path / "model", head_dim=16)
    model = {"path": str(tmp_path / "model"), "max_length": 512, "dtype": "float32"}
    done = run_generator(programs, tmp_path, {"slots": 8, "engine": engine}, model=model)
    assert done.code == 2, done.said
    last = done.said.splitlines()[-1]
    assert last.startswith(
        f"error: model.path = {tmp_path}/model{blamed}: vLLM cannot serve it (RuntimeError: "
    )
    assert "head_dim=16" in last
    assert ("generator.engine" in last) is bool(blamed)
    assert "above" not in last


def test_a_models_folder_that_is_not_there_is_one_sentence(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    model = {"path": str(tmp_path / "typo"), "max_length": 512, "dtype": "float32"}
    done = run_generator(programs, tmp_path, {"slots": 8}, model=model)
    assert done.code == 2, done.said
    assert done.said.splitlines()[-1].startswith(
        f"error: model.path = '{tmp_path}/typo': there is no such folder on "
    )


class TrainersDoor(WeightSyncServicer):
    """Where a generator that starts reports to the trainer."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []

    def Starting(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.keys.append(request.key)
        return weights_pb2.Noted()


@pytest.mark.engine
def test_a_generator_with_the_users_own_run_file_reaches_the_trainer_of_the_run_under_way(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    """The file tells neither the port that `rollcast up` chose nor the token that it made."""
    make_tiny_model(tmp_path / "model")
    config = run_file(
        tmp_path, {"slots": 8}, model={"path": str(tmp_path / "model"), "max_length": 512}
    )
    given = load_run_config(Path(config))
    door = TrainersDoor()
    log = tmp_path / "joined.log"
    rpc = Rpc(port=0, token=SecretStr("made by up"))
    server, port = start_server(
        rpc, lambda server: add_WeightSyncServicer_to_server(door, server), setting="rpc.port"
    )
    try:
        with run_folder.lock_folder(given.run_folder):
            started = given.model_copy(update={"rpc": rpc.model_copy(update={"port": port})})
            write_resolved(started, given.run_folder / "run.json")
            generator = programs.start(
                "rollcast.generator", ["--config", config, "--name", "x"], log
            )
            try:
                deadline = time.monotonic() + 120
                while not door.keys:
                    assert generator.poll() is None, log.read_text()
                    assert time.monotonic() < deadline, log.read_text()
                    time.sleep(0.1)
            finally:
                generator.terminate()
                generator.wait(60)
    finally:
        server.stop(0.0)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, rollcast.generator.__main__; print([m for m in ('torch', 'vllm', 'grpc') if m "
        "in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.engine
def test_an_engine_that_does_not_fit_is_one_sentence_and_parks_where_that_is_asked_for(
    tmp_path: Path, programs: ForkedPrograms
) -> None:
    """A petabyte of KV cache. Without `--park` whoever supervises is told by the exit code."""
    make_tiny_model(tmp_path / "model")
    model = {"path": str(tmp_path / "model"), "max_length": 512, "dtype": "float32"}
    port, log = free_port("127.0.0.1"), tmp_path / "parked.log"
    generator = {"slots": 8, "cpu_kv_cache_gib": 1 << 20, "http_port": port}
    config = run_file(tmp_path, generator, model=model)
    sentence = (
        f"out of host memory: vLLM's engine for model.path = {tmp_path}/model does not fit; give "
        "the machine more, or lower generator.cpu_kv_cache_gib (now 1048576)"
    )
    parked = programs.start(
        "rollcast.generator", ["--config", config, "--name", "x", "--park"], log
    )
    try:
        deadline = time.monotonic() + 120
        while (said := asked(port, "/readyz")) is None or "out of host memory" not in said.text:
            assert parked.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        assert said.status_code == 503
        assert sentence in said.text
        assert httpx.get(f"http://127.0.0.1:{port}/startz").status_code == 200, (
            "kubelet would start it again"
        )
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
        assert re.search(r"^rollcast_generator_parked\{.*\} 1\.0$", page, re.MULTILINE)
        holder = psutil.Process(parked.pid)
        left = [process.cmdline() for process in holder.children(recursive=True)]
        assert not any("EngineCore" in " ".join(words) for words in left), "it holds no device"
        assert holder.cmdline() not in left, "nor does a fork of it"
        assert "Traceback" not in log.read_text().rpartition("parked")[2]
    finally:
        parked.terminate()
    assert parked.wait(30) == 2
    done = run_generator(programs, tmp_path, generator | {"http_port": 0}, model=model)
    assert done.code == 2, done.said
    assert done.said.splitlines()[-1] == f"error: {sentence}", done.said


def asked(port: int, path: str) -> httpx.Response | None:
    try:
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5.0)
    except httpx.TransportError:
        return None
