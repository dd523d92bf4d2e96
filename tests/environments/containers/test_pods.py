"""Pods whose cluster fails, and what is refused before the start: the API server is a stand-in, the
programs are real.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rollcast.config.environments.container import ContainerSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.containers.container import Container
from rollcast.environments.containers.engines import find_engine, missing_for_containers
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pods.engine import Kubernetes
from rollcast.environments.containers.pods.enter_pod import __file__ as entering
from rollcast.environments.containers.pods.manifest import owner
from rollcast.environments.of_run import missing_in_cluster
from testkit.containers import IMAGE, START_SECONDS, podman
from testkit.pod_server import NAMESPACE, PodServer

SETTINGS = ContainerSettings(
    engine="kubernetes", namespace=NAMESPACE, image=IMAGE, memory_gib=0.0625, disk_gib=0.03125
)
SHELL = ("/bin/sh", "-c")
OWNER = f"""
import asyncio
from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.engines import find_engine

async def main():
    settings = ContainerSettings.model_validate_json({SETTINGS.model_dump_json()!r})
    engine = find_engine(settings, "box")
    print((await engine.start({IMAGE!r}, {START_SECONDS})).name, flush=True)
    await asyncio.sleep(1000)

asyncio.run(main())
"""


@pytest_asyncio.fixture
async def pod(pod_server: PodServer) -> AsyncIterator[Container]:
    engine = find_engine(SETTINGS, "box")
    started = await engine.start(IMAGE, START_SECONDS)
    yield started
    await started.end()
    await engine.close()


async def run_and_wait(pod: Container, command: str) -> asyncio.Task[Any]:
    """A command that has begun, and does not end by itself."""
    running = asyncio.create_task(pod.run([*SHELL, f"{command}; sleep 100"], 60.0))
    await asyncio.sleep(1.0)
    assert not running.done()
    return running


async def test_a_pod_that_is_deleted_is_lost_and_its_programs_are_not_to_blame(
    pod: Container, pod_server: PodServer
) -> None:
    running = await run_and_wait(pod, "echo begun")
    await asyncio.to_thread(pod_server.delete, pod.name)
    with pytest.raises(ContainerError, match="its pod was deleted") as caught:
        await running
    assert not isinstance(caught.value, SpoiledError)
    assert await pod.has_ended()


async def test_a_lost_connection_is_no_deed_of_the_programs(
    pod: Container, pod_server: PodServer
) -> None:
    running = await run_and_wait(pod, "echo begun")
    await asyncio.to_thread(pod_server.drop_connections)
    with pytest.raises(ContainerError, match="connection to a command was lost") as caught:
        await running
    assert not isinstance(caught.value, SpoiledError)
    assert (await pod.run([*SHELL, "echo after"], 10.0)).text == "after"


async def test_a_lost_node_is_no_deed_of_the_programs(
    pod: Container, pod_server: PodServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection to the API server opens, and nothing comes."""
    monkeypatch.setattr(pod_server, "is_node_lost", True)
    with pytest.raises(ContainerError, match="its node does not answer") as caught:
        await pod.run([*SHELL, "echo begun"], 2.0)
    assert not isinstance(caught.value, SpoiledError)


async def test_programs_that_remove_the_folder_of_their_image_spoil_the_pod(
    pod_server: PodServer,
) -> None:
    image = "localhost/rollcast-tests-folder:1"
    made = podman("build", "--tag", image, "-", input=f"FROM {IMAGE}\nWORKDIR /app\n".encode())
    assert made.returncode == 0, made.stderr
    engine = find_engine(SETTINGS, "box")
    started = await engine.start(image, START_SECONDS)
    try:
        assert (await started.run([*SHELL, "busybox pwd; rm -rf /app"], 10.0)).text == "/app"
        with pytest.raises(SpoiledError, match="folder of its image, cannot be used"):
            await started.run([*SHELL, "echo never"], 10.0)
    finally:
        await started.end()
        await engine.close()


async def test_a_first_process_that_is_killed_ran_out_of_memory(pod: Container) -> None:
    """Whatever else kills it, the cluster gives a reason."""
    running = await run_and_wait(pod, "echo begun")
    await asyncio.to_thread(podman, "kill", pod.name)
    with pytest.raises(SpoiledError, match="its first process was ended"):
        await running


async def test_output_without_end_ends_before_its_deadline(pod: Container) -> None:
    began = time.monotonic()
    output = await pod.run([*SHELL, "yes; echo never"], 1_000.0)
    assert (output.code, len(output.content)) == (137, 1 << 20)
    assert output.num_dropped >= 64 << 20
    assert time.monotonic() - began < 500
    assert "yes" not in (await pod.run([*SHELL, "ps"], 10.0)).text


async def test_a_command_and_its_variables_are_in_no_address(
    pod: Container, pod_server: PodServer
) -> None:
    command = [*SHELL, 'echo "$KEY, $1"', "sh", "in\n'quotes' $HOME"]
    output = await pod.run(command, 10.0, variables={"KEY": "of\na test"})
    assert output.text == "of\na test, in\n'quotes' $HOME"
    assert pod_server.last_command
    assert not {"of", "quotes"} & set(" ".join(pod_server.last_command).split())


async def test_a_pod_ends_after_its_seconds(pod_server: PodServer) -> None:
    engine = find_engine(SETTINGS.model_copy(update={"seconds": 4.0}), "box")
    started = await engine.start(IMAGE, START_SECONDS)
    try:
        with pytest.raises(ContainerError, match="ended after 4 s"):
            await started.run([*SHELL, "sleep 100"], 60.0)
    finally:
        await started.end()
        await engine.close()


async def test_commands_hold_no_threads(pod: Container) -> None:
    """Each waits until all have begun, and there is one thread for calls that block."""
    with ThreadPoolExecutor(1) as single_thread:
        asyncio.get_running_loop().set_default_executor(single_thread)
        wait_for_all = "while [ $(ls /tmp | wc -l) -lt 8 ]; do sleep 0.1; done"
        running = [
            pod.run([*SHELL, f"touch /tmp/{number}; {wait_for_all}; echo {number}"], 60.0)
            for number in range(8)
        ]
        outputs = [output.text for output in await asyncio.gather(*running)]
    assert outputs == [str(number) for number in range(8)]


async def test_a_program_of_this_machine_runs_commands_without_access_to_the_cluster(
    pod: Container, tmp_path: Path
) -> None:
    command = await pod.open_commands(user=None, folder="/tmp")
    assert command[:4] == [sys.executable, "-I", "-S", entering]

    async def run(text: str) -> tuple[int, str]:
        process = await asyncio.create_subprocess_exec(
            *(*shlex.split(shlex.join(command)), *SHELL, text),
            stdout=asyncio.subprocess.PIPE,
            env={},
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    assert await run("busybox pwd; echo wrong >&2; exit 9") == (9, "/tmp\nwrong\n")
    code, output = await run("yes | head -c 3000000")
    assert code == 0
    assert output.endswith(f"\n[{3_000_000 - (1 << 20)} further bytes were not kept]\n")
    killed = await asyncio.create_subprocess_exec(*command, *SHELL, "sleep 50")
    await asyncio.sleep(1.0)
    killed.kill()
    await killed.wait()
    assert await run("kill -9 $$; echo never") == (137, "")
    code, output = await run("yes")
    assert code == 137
    assert output.endswith("further bytes were not kept]\n")
    await pod.end()
    assert await run("echo never") == (125, "the container has ended\n")


async def test_no_other_user_runs_a_command(pod: Container) -> None:
    with pytest.raises(ContainerError, match="user nobody"):
        await pod.run([*SHELL, "id"], 10.0, user="nobody")
    assert (await pod.run([*SHELL, "id -u"], 10.0, user="0")).text == "0"


async def test_a_start_that_is_given_up_before_the_cluster_answers_leaves_no_pod(
    pod_server: PodServer,
) -> None:
    before = len(pod_server.created)
    pod_server.delays_seconds.append(3.0)
    engine = find_engine(SETTINGS, "box")
    starting = asyncio.create_task(engine.start(IMAGE, START_SECONDS))
    await asyncio.sleep(1.0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    (pod,) = pod_server.created[before:]
    assert await asyncio.to_thread(wait_until_gone, pod_server, {pod["metadata"]["name"]})
    await engine.close()


async def test_an_image_whose_shell_does_not_start_is_refused_at_once(
    pod_server: PodServer,
) -> None:
    image = "localhost/rollcast-tests-no-shell:1"
    made = podman("build", "--tag", image, "-", input=b"FROM scratch\nWORKDIR /app\n")
    assert made.returncode == 0, made.stderr
    engine = find_engine(SETTINGS, "box")
    with pytest.raises(ContainerError, match=r"cannot be started: StartError: .*/bin/sh"):
        await engine.start(image, 1_000.0)
    await engine.close()


def wait_until_gone(pod_server: PodServer, names: set[str]) -> bool:
    deadline = time.monotonic() + 30
    while names & set(pod_server.pods) and time.monotonic() < deadline:
        time.sleep(0.1)
    left = names & set(pod_server.pods)
    assert not left, [pod_server.pods[name] for name in left]
    return not left


def test_pods_of_a_killed_process_are_removed_by_the_next_and_others_are_not(
    pod_server: PodServer,
) -> None:
    def start() -> tuple[subprocess.Popen[bytes], str]:
        owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE)
        assert owner.stdout is not None
        return owner, owner.stdout.readline().decode().strip()

    (killed, gone), (alive, there) = start(), start()
    try:
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert {gone, there} <= set(pod_server.pods)
        assert find_engine(SETTINGS, "box").remove_abandoned() == 1
        assert wait_until_gone(pod_server, {gone})
        assert there in pod_server.pods
    finally:
        for owner in (killed, alive):
            owner.kill()
            owner.communicate()
        pod_server.delete(there)


def test_pods_that_this_process_did_not_make_are_left(
    pod_server: PodServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POD_UID", raising=False)
    labels = {"rollcast.io/owner": owner(), "rollcast.io/process": "no-number"}
    named = {"name": "odd", "labels": labels}
    monkeypatch.setitem(pod_server.pods, "odd", {"metadata": named, "status": {"phase": "Pending"}})
    assert find_engine(SETTINGS, "box").remove_abandoned() == 0
    labels["rollcast.io/process"] = "1-1"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    labels["rollcast.io/owner"] = owner().replace(boot, "0" * len(boot))
    assert find_engine(SETTINGS, "box").remove_abandoned() == 0, "another machine of this name"
    assert "odd" in pod_server.pods


def sentences(**settings: Any) -> list[str]:
    return list(missing_for_containers(SETTINGS.model_copy(update=settings), "box", "field"))


def test_what_keeps_a_pod_from_its_start_is_said_before_it(pod_server: PodServer) -> None:
    before = len(pod_server.created)
    assert sentences() == []
    (sentence,) = sentences(image="localhost/not-there:1")
    assert sentence.startswith("field.image = localhost/not-there:1: it cannot be started: ErrIm")
    assert 'failed to pull "localhost/not-there:1": not found' in sentence
    (sentence,) = sentences(runtime="gvisor")
    assert 'RuntimeClass "gvisor" not found' in sentence
    tried = {pod["metadata"]["name"] for pod in pod_server.created[before:]}
    assert len(tried) == 3
    assert wait_until_gone(pod_server, tried)


def test_a_generator_asks_its_cluster_when_it_starts(pod_server: PodServer) -> None:
    absent = SETTINGS.model_copy(update={"image": "localhost/not-there:1"})
    tools = {"kind": "tools", "name": "box", "tools": ("shell",), "profile": "container"}
    environments = [
        ToolSet.model_validate(tools | {"container": container})
        for container in (SETTINGS, absent, ContainerSettings(image="localhost/not-there:1"))
    ]
    (sentence,) = missing_in_cluster(environments)
    assert sentence.startswith("tasks.environments.1.container.image = localhost/not-there:1: ")


def test_missing_rights_are_named(pod_server: PodServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_server, "denied", {"create pods/exec", "watch pods"})
    (sentence,) = sentences()
    assert sentence == (
        "field.engine = kubernetes: this account may not watch pods, create pods/exec; grant it by "
        "a Role, as the chart does"
    )
    monkeypatch.setattr(pod_server, "denied", {"create pods"})
    started = find_engine(SETTINGS, "box").missing_images({IMAGE: "row 1: image"}, "field")
    assert "pods is forbidden" in " ".join(started)


def test_an_image_without_what_a_task_needs_is_refused(pod_server: PodServer) -> None:
    engine = find_engine(SETTINGS, "box")
    assert list(engine.missing_images({IMAGE: "a task"}, "field", "command -v tar")) == []
    (sentence,) = engine.missing_images({IMAGE: "a task"}, "field", "command -v bash")
    assert "command -v bash failed in it" in sentence


def test_without_a_cluster_the_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (sentence,) = sentences()
    assert "there is no access to Kubernetes" in sentence
    monkeypatch.setenv("KUBECONFIG", str(PodServer(port=9).kubeconfig(tmp_path)))
    (sentence,) = sentences()
    assert "127.0.0.1:9" in sentence
    (sentence,) = sentences(namespace=None)
    assert "the context of KUBECONFIG has no namespace; set `namespace`" in sentence

    async def start() -> None:
        engine = Kubernetes(SETTINGS, "box")
        try:
            await engine.start(IMAGE, START_SECONDS)
        finally:
            await engine.close()

    with pytest.raises(ContainerError, match="cannot be started"):
        asyncio.run(start())


@pytest.mark.parametrize("content", ["", "{", "- a list", "contexts: 3"])
def test_a_malformed_kubeconfig_is_one_sentence(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "malformed").write_text(content)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "malformed"))
    (sentence,) = sentences()
    assert "there is no access to Kubernetes" in sentence
