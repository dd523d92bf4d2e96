from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from rollcast.config.connections import Redis
from rollcast.config.errors import UserError
from rollcast.config.resolved import write_resolved
from rollcast.config.run import RunConfig, load_run_config, parse_run_config
from rollcast.local import preflight
from rollcast.local.checks.check import Start
from rollcast.local.checks.checklist import check_start
from rollcast.local.demo.base_model import PLACEHOLDER, BaseModel
from rollcast.local.embedded_redis import (
    find_server,
    wait_for_embedded,
    wait_until_ready,
    write_server_config,
)
from rollcast.local.ports import free_port
from rollcast.local.process import Command, Service, ServiceSpec
from rollcast.rollouts.keys import Keys
from rollcast.runfolder import folder as run_folder
from rollcast.tasks.prompts import load
from rollcast.tasks.same_prompts import prompts_digest


def settings(tmp_path: Path, **changes: Any) -> RunConfig:
    model = tmp_path / "model"
    if not model.exists():
        model.mkdir()
        (model / "config.json").write_text("{}")
        (model / "model.safetensors").write_bytes(b"0" * 1000)
    data: dict[str, Any] = {
        "run": "r",
        "folder": str(tmp_path / "runs"),
        "model": {"path": str(model)},
        "redis": {"port": 0},
        "rpc": {"port": 0},
        "forecaster": {"http_port": 0},
        "tasks": {"evaluation": {"num_prompts": 20}},
        "budget": {"steps": 1},
    }
    return parse_run_config({**data, **changes}, source="test")


def taken_port() -> tuple[socket.socket, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, listener.getsockname()[1]


def test_a_sound_run_passes_and_nothing_is_written(tmp_path: Path) -> None:
    preflight.check(settings(tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_verifier_that_is_not_installed_is_named_before_anything_starts(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"prompt": "{number}", "answer": "{number}"}}\n' for number in range(40))
    )
    tasks = {
        "dataset": {"kind": "jsonl", "name": "d", "path": str(rows), "verifier": "mathh"},
        "evaluation": {"num_prompts": 20},
    }
    with pytest.raises(
        UserError, match=r"tasks\.dataset\.verifier = 'mathh': neither built in nor installed here"
    ):
        preflight.check(settings(tmp_path, tasks=tasks))


def test_data_that_is_not_the_checkpoints_is_refused_before_anything_is_started(
    tmp_path: Path,
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(f'{{"prompt": "{number}", "answer": "{number}"}}\n' for number in range(1_000))
    )
    dataset = {"kind": "jsonl", "name": "d", "path": str(rows), "verifier": "exact"}
    config = settings(tmp_path, tasks={"dataset": dataset, "evaluation": {"num_prompts": 20}})
    checkpoint = tmp_path / "runs" / "r" / "checkpoints" / "1.4"
    checkpoint.mkdir(parents=True)
    controller = {"uses": {}, "split_rules": 2, "prompts": prompts_digest(load(config.tasks))}
    (checkpoint / "controller.json").write_text(json.dumps({"controller": controller}))
    check_start(Start(config))
    rows.write_text(rows.read_text() + '{"prompt": "more", "answer": "more"}\n')
    with pytest.raises(
        UserError, match=r"^tasks\.dataset: its training and held-out prompts are not those that"
    ):
        check_start(Start(config))


@pytest.mark.parametrize("spoil", ["config.json", "model.safetensors"])
def test_a_model_without_its_files_is_named(tmp_path: Path, spoil: str) -> None:
    config = settings(tmp_path)
    (tmp_path / "model" / spoil).unlink()
    with pytest.raises(UserError, match=rf"model\.path = {tmp_path}/model"):
        preflight.check(config)


def test_a_model_that_is_not_there_or_not_readable_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"model\.path = /no/such: config\.json cannot be read \(No such file"
    ):
        preflight.check(settings(tmp_path, model={"path": "/no/such"}))
    (tmp_path / "model" / "config.json").write_text("{broken")
    with pytest.raises(UserError, match="not JSON"):
        preflight.check(settings(tmp_path))
    (tmp_path / "model" / "config.json").unlink()
    (tmp_path / "model" / "config.json").mkdir()
    with pytest.raises(UserError, match="Is a directory"):
        preflight.check(settings(tmp_path))


@pytest.mark.parametrize("path", ["~/m", "a/b/c", "./m", "m/"])
def test_what_cannot_be_a_name_on_the_hub_is_a_folder(tmp_path: Path, path: str) -> None:
    written = re.escape(os.path.expanduser(path))
    with pytest.raises(UserError, match=rf"model\.path = {written}: config\.json cannot be read"):
        preflight.check(settings(tmp_path, model={"path": path}))


@pytest.mark.parametrize(
    "path", ["models/tinny-qwen", "modles/tiny-qwen", "models/tiny_qwen3", "Models/TinyQwen"]
)
def test_a_misspelt_folder_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    settings(tmp_path)
    name = "tiny-qwen3" if "3" in path else "tiny-qwen"
    (tmp_path / "model").rename(tmp_path / "models" / name)
    with pytest.raises(UserError) as refused:
        check_start(Start(settings(tmp_path, model={"path": path})))
    assert str(refused.value) == (
        f"model.path = {path}: there is no such folder; did you mean models/{name}? If the hub's "
        f"model is meant, download it first: hf download {path}"
    )


@pytest.mark.parametrize(
    "path", ["Qwen/Qwen3-4B", "models/Qwen3-8B", "models/Qwen2.5-0.5B", "other/Qwen3-8B"]
)
def test_another_model_next_to_a_folder_is_still_the_hubs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for owner in ("Qwen", "models"):
        settings(tmp_path)
        (tmp_path / owner).mkdir()
        (tmp_path / "model").rename(
            tmp_path / owner / ("Qwen3-8B" if owner == "Qwen" else "Qwen3-4B")
        )
    check_start(Start(settings(tmp_path, model={"path": path})))


@pytest.mark.parametrize("path", ["gpt2", "Qwen/Qwen3-0.6B", "org_1/model.v2"])
def test_a_name_on_the_hub_is_left_to_the_trainer(tmp_path: Path, path: str) -> None:
    preflight.check(settings(tmp_path, model={"path": path}))


@pytest.mark.parametrize(("hidden", "field"), [("model", "model.path"), ("runs", "folder")])
def test_a_folder_that_may_not_be_looked_into_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str, field: str
) -> None:
    config = settings(tmp_path)
    if hidden == "model":
        monkeypatch.chdir(tmp_path)
        config = settings(tmp_path, model={"path": "model"})
    stat = os.stat

    def refusing(path: Any, **options: Any) -> os.stat_result:
        if hidden in str(path).removeprefix(str(tmp_path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return stat(path, **options)

    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(UserError, match=f"^{re.escape(field)} = "):
        preflight.check(config)


@pytest.mark.parametrize(
    ("section", "field"),
    [
        ("rpc", "port"),
        ("trainer", "http_port"),
        ("generator", "http_port"),
        ("forecaster", "http_port"),
    ],
)
def test_a_port_in_use_is_named_by_its_setting(tmp_path: Path, section: str, field: str) -> None:
    listener, port = taken_port()
    with listener, pytest.raises(UserError, match=rf"{section}\.{field} = {port}"):
        preflight.check(settings(tmp_path, **{section: {field: port}}))


def test_two_settings_cannot_share_a_port(tmp_path: Path) -> None:
    listener, port = taken_port()
    listener.close()
    with pytest.raises(UserError, match=rf"forecaster\.http_port = {port}"):
        preflight.check(settings(tmp_path, rpc={"port": port}, forecaster={"http_port": port}))


def test_each_generator_takes_the_next_port(tmp_path: Path) -> None:
    """Which of them is said to be taken: another test may hold the port before it."""
    listener, port = taken_port()
    config = settings(tmp_path, generator={"http_port": port - 1}, local={"generators": 2})
    with listener, pytest.raises(UserError, match=rf"generator\.http_port = ({port - 1}|{port}):"):
        preflight.check(config)


def test_the_port_of_a_prometheus_counts_where_one_is_started(tmp_path: Path) -> None:
    listener, port = taken_port()
    config = settings(tmp_path, local={"prometheus_port": port})
    with listener:
        preflight.check(config)
        with pytest.raises(UserError, match=rf"local\.prometheus_port = {port}"):
            preflight.check(config, monitor=True)


def test_too_little_disk_is_told_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100 << 20))
    with pytest.raises(UserError, match=r"100 MiB are free and 256 MiB are needed"):
        preflight.check(settings(tmp_path))


def test_the_room_of_recorded_steps_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(tmp_path, record={"on": ["failed"], "max_bytes": 2 << 30})
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2100 << 20))
    sentence = (
        r"2100 MiB are free and 2304 MiB are needed for 4 checkpoints and the recorded steps; "
        r"free space, or set folder, trainer\.keep_checkpoints or record\.max_bytes"
    )
    with pytest.raises(UserError, match=sentence):
        preflight.check(config)
    recorded = config.run_folder / "recorded" / "step-1"
    recorded.mkdir(parents=True)
    with (recorded / "arrays.safetensors").open("wb") as file:
        file.truncate(300 << 20)  # of an earlier start
    preflight.check(config)


def test_an_external_redis_that_is_away_is_told(tmp_path: Path) -> None:
    listener, port = taken_port()
    listener.close()
    with pytest.raises(UserError, match=rf"redis\.port = {port}: no Redis answers"):
        preflight.check(settings(tmp_path, redis={"port": port, "timeout_seconds": 0.5}))


@pytest.mark.parametrize("setting", [{"username": "me"}, {"tls": {}}])
def test_what_the_embedded_redis_is_not_given_is_refused(
    tmp_path: Path, setting: dict[str, Any]
) -> None:
    (name,) = setting
    with pytest.raises(UserError, match=rf"redis\.{name}: the embedded server"):
        preflight.check(settings(tmp_path, redis={"port": 0, **setting}))


def test_a_bad_data_row_is_told_before_anything_starts(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "1"}\n')
    with pytest.raises(UserError, match="line 1: field 'answer'"):
        preflight.check(
            settings(tmp_path, tasks={"dataset": {"kind": "jsonl", "name": "d", "path": str(rows)}})
        )


def test_resolved_settings_have_ports_and_survive_the_resolved_file(tmp_path: Path) -> None:
    config = preflight.resolve_ports(settings(tmp_path, redis={"port": 0, "password": "secret"}))
    assert config.redis.port
    assert config.rpc.port
    write_resolved(config, tmp_path / "run.json")
    assert load_run_config(tmp_path / "run.json") == config
    assert (tmp_path / "run.json").stat().st_mode & 0o077 == 0


def test_one_run_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "r"
    program = (
        "import sys; from pathlib import Path; from rollcast.runfolder.folder import lock_folder\n"
        "with lock_folder(Path(sys.argv[1])):\n    print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    with (
        pytest.raises(UserError, match=f"process {other.pid} is running it"),
        run_folder.lock_folder(folder),
    ):
        pass
    other.kill()
    other.communicate(timeout=30)
    with run_folder.lock_folder(folder):  # the kernel gave a dead owner's lock back
        pass


def test_a_folder_that_holds_a_run_wants_resume(tmp_path: Path) -> None:
    for name in ("redis", "ports"):
        (tmp_path / name).mkdir()
    run_folder.prepare(tmp_path, resume=False)
    assert not (tmp_path / "redis").exists()
    (tmp_path / "redis").mkdir()
    (tmp_path / "format.json").write_text('{"format": 1}')
    (tmp_path / "evaluations.jsonl").touch()
    with pytest.raises(UserError, match="--resume"):
        run_folder.prepare(tmp_path, resume=False)
    run_folder.prepare(tmp_path, resume=True)
    assert (tmp_path / "redis").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_what_a_start_without_history_left_is_not_continued(tmp_path: Path, resume: bool) -> None:
    left = ["tasks.jsonl", "compute.json", "forecasts.sqlite"]
    for name in left:
        (tmp_path / name).touch()
    run_folder.prepare(tmp_path, resume=resume)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "format.json").write_text('{"format": 1}')
    for name in [*left, "steps.jsonl"]:
        (tmp_path / name).touch()
    run_folder.prepare(tmp_path, resume=True)
    assert {path.name for path in tmp_path.iterdir()} == {*left, "steps.jsonl", "format.json"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with (
        pytest.raises(UserError, match="cannot be written"),
        run_folder.lock_folder(tmp_path / "r"),
    ):
        pass


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs").touch()
    with pytest.raises(UserError, match="cannot be written"):
        preflight.check(settings(tmp_path))
    with (
        pytest.raises(UserError, match="cannot be written"),
        run_folder.lock_folder(tmp_path / "runs" / "r"),
    ):
        pass


def test_the_embedded_server_keeps_its_data_and_wants_the_password(tmp_path: Path) -> None:
    from rollcast.connections.redis import connect

    redis = free_redis(tmp_path, password='a "b" c')
    for value in (b"1", b"2"):
        path = write_server_config(redis, "r", tmp_path / "redis", "trainer's")
        server = subprocess.Popen([str(find_server()), str(path)], stdout=subprocess.DEVNULL)
        try:
            wait_until_ready(redis)
            client = connect(redis)
            assert client.hincrby(Keys("r").state, "counter", 1) == int(value)
            client.close()
            with pytest.raises(UserError, match=r"redis\.password"):
                wait_until_ready(redis.model_copy(update={"password": SecretStr("wrong")}))
        finally:
            server.terminate()
            server.wait(timeout=30)
    assert path.stat().st_mode & 0o077 == 0


def embedded(tmp_path: Path, redis: Redis) -> Service:
    server = write_server_config(redis, "r", tmp_path / "redis", "trainer's")
    arguments = (str(find_server()), str(server))
    return Service(
        ServiceSpec(
            "redis", (Command(arguments, tmp_path / "redis.log"),), stop_order=0, stop_seconds=20.0
        )
    )


def free_redis(tmp_path: Path, password: str = "secret") -> Redis:
    given = {"username": "generator", "password": SecretStr(password)}
    redis = settings(tmp_path).redis
    return redis.model_copy(update={"port": free_port("127.0.0.1"), **given})


def test_an_embedded_server_that_ends_says_why(tmp_path: Path) -> None:
    redis = free_redis(tmp_path)
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "appendonly.aof").write_text("no append-only file")
    server = embedded(tmp_path, redis)
    server.start()
    with pytest.raises(
        UserError, match=r"redis\.port = 0: the embedded Redis does not start \(.*append only file"
    ):
        wait_for_embedded(redis, server, asked_to_stop=lambda: False)
    server.kill()


def test_an_embedded_server_that_loads_is_waited_for_until_a_stop_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that answers LOADING for longer than a silent one is waited for."""
    # A Python that starts on a busy machine has answered by then.
    monkeypatch.setattr("rollcast.local.embedded_redis.START_SECONDS", 6.0)
    redis = free_redis(tmp_path)
    program = (
        "import socketserver, sys, time\n"
        "began = time.monotonic()\n"
        "class Loading(socketserver.StreamRequestHandler):\n"
        "    def handle(self):\n"
        "        while line := self.rfile.readline():\n"
        "            if b'PING' in line:\n"
        "                is_loaded = time.monotonic() - began > float(sys.argv[1])\n"
        "                self.wfile.write(b'+PONG\\r\\n' if is_loaded else b'-LOADING the data "
        "set\\r\\n')\n"
        "            elif b'CLIENT' in line or b'AUTH' in line:\n"
        "                self.wfile.write(b'+OK\\r\\n')\n"
        f"socketserver.ThreadingTCPServer(('127.0.0.1', {redis.port}), Loading).serve_forever()\n"
    )
    for seconds, patience in (("8", 60.0), ("600", 2.0)):
        arguments = (sys.executable, "-c", program, seconds)
        server = Service(
            ServiceSpec(
                "redis", (Command(arguments, tmp_path / "log"),), stop_order=0, stop_seconds=1.0
            )
        )
        server.start()
        began = time.monotonic()
        wait_for_embedded(redis, server, asked_to_stop=lambda: time.monotonic() - began > patience)  # noqa: B023
        assert server.running, server.last_words()
        server.kill()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"generator": {"cpu": 4}, "local": {"generators": 3}},
            (
                "generator.cpu = 4: local.generators = 3 take a core each from there on, and core "
                "6 is not among [2, 4, 5]"
            ),
        ),
        (
            {"trainer": {"cpu": 2}, "local": {"trainer_ranks": 2}},
            (
                "trainer.cpu = 2: local.trainer_ranks = 2 take a core each from there on, and core "
                "3 is not among"
            ),
        ),
        ({"generator": {"cpu": 4}, "trainer": {"cpu": 2}, "local": {"generators": 2}}, None),
    ],
)
def test_each_process_needs_a_core_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], sentence: str | None
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 2, 4})
    with (
        pytest.raises(UserError, match=re.escape(sentence))
        if sentence
        else contextlib.nullcontext()
    ):
        preflight.check(settings(tmp_path, **changes))


def first_ports(runs: contextlib.ExitStack, files: list[Path]) -> list[int]:
    """The port of the page of each run, each resolved in a process of its own, as two `up` are; all
    stay alive.
    """
    program = (
        "import sys; from pathlib import Path; from rollcast.config.run import load_run_config;"
        "from rollcast.local.preflight import resolve_ports;"
        "print(resolve_ports(load_run_config(Path(sys.argv[1]))).forecaster.http_port, "
        "flush=True); input()"
    )
    ports = []
    for file in files:
        command = [sys.executable, "-c", program, str(file)]
        run = runs.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        runs.callback(run.communicate, "\n", timeout=60)
        assert run.stdout is not None
        ports.append(int(run.stdout.readline()))
    return ports


def test_a_second_run_gets_a_page_of_its_own_before_the_first_ones_page_listens(
    tmp_path: Path,
) -> None:
    """The file that `up` writes for its services leaves the port out again, as the user did."""
    write_resolved(settings(tmp_path), tmp_path / "up.json")
    with contextlib.ExitStack() as runs:
        ports = first_ports(runs, [tmp_path / "up.json"] * 2)
    assert ports in ([8_400, 0], [0, 0]), "a run of another test may have the first"


def test_a_port_that_the_user_gave_and_another_run_keeps_is_refused(tmp_path: Path) -> None:
    port = free_port("127.0.0.1")
    given = settings(tmp_path, forecaster={"http_port": port})
    write_resolved(given, tmp_path / "up.json")
    with contextlib.ExitStack() as runs:
        assert first_ports(runs, [tmp_path / "up.json"]) == [port]
        with pytest.raises(
            UserError, match=rf"forecaster.http_port = {port}: another run of this machine"
        ):
            preflight.resolve_ports(given)


def test_the_demos_model_is_no_misspelt_folder_before_it_is_trained(tmp_path: Path) -> None:
    assert (
        preflight.check(settings(tmp_path, model={"path": BaseModel().key}, budget={"steps": 500}))
        == []
    )
    (said,) = preflight.check(
        settings(tmp_path, model={"path": PLACEHOLDER}, budget={"steps": 500})
    )
    assert said.startswith(
        "model.path = arithmetic-base: is the demo's model, which `rollcast demo` trains"
    )
