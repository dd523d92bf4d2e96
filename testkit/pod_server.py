"""A stand-in for an API server and a node: its pods are real containers of podman.

It keeps what the official client and a pod's manifest say: methods, selectors, watches, the
channels of a command, access reviews, and how a kubelet reports images that cannot be pulled,
programs that need too much, and pods that are deleted. No cluster is to be had here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import yaml
from aiohttp import WSMsgType, web

from testkit.containers import podman_command

NAMESPACE = "episodes"
LABEL = "rollcast.test-pod"
NETWORK_LABEL = "rollcast.io/network"
PIDS_LIMIT = 32
"""The kubelet's podPidsLimit."""
Pod = dict[str, Any]


async def podman(*arguments: str) -> tuple[int, str]:
    """Exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *podman_command(*arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd="/proc",
    )
    try:
        output, _ = await process.communicate()
    finally:
        await end(process)
    return process.returncode or 0, output.decode(errors="replace")


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a command of podman, if it has not ended, and read its remaining output."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.communicate()


def runtime_arguments(pod: Pod) -> list[str]:
    """The arguments of podman by which a container is as a manifest asks."""
    (container,) = pod["spec"]["containers"]
    limits, rights = container["resources"]["limits"], container["securityContext"]
    assert limits == container["resources"]["requests"]
    assert rights["allowPrivilegeEscalation"] is False
    assert pod["spec"]["automountServiceAccountToken"] is False
    return [
        *(("--network", "none") if pod["metadata"]["labels"][NETWORK_LABEL] == "none" else ()),
        *("--no-hosts", "--http-proxy=false", "--log-driver", "none"),
        *("--memory", limits["memory"], "--memory-swap", limits["memory"]),
        *("--cpus", str(int(limits["cpu"].removesuffix("m")) / 1000)),
        *("--pids-limit", str(PIDS_LIMIT), "--security-opt", "no-new-privileges"),
        *(f"--cap-drop={name}" for name in rights["capabilities"]["drop"]),
        *(f"--cap-add={name}" for name in rights["capabilities"]["add"]),
        *("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096"),
        *(f"--env={entry['name']}={expand(entry['value'])}" for entry in container["env"]),
        *("--entrypoint", json.dumps(container["command"]), container["image"]),
    ]


def expand(text: str) -> str:
    """A variable's value as a kubelet sets it: it knows no other one here."""
    return re.sub(r"\$(\$|\(\w+\))", lambda match: "$" if match[1] == "$" else "", text)


class PodServer:
    """`with PodServer() as server`: KUBECONFIG is `server.kubeconfig(folder)`."""

    def __init__(self, port: int = 0) -> None:
        self.pods: dict[str, Pod] = {}
        self.created: list[Pod] = []
        """Every manifest that was sent."""
        self.denied: set[str] = set()
        """Verbs that the account may not use, such as `delete pods` and `create pods/exec`."""
        self.is_node_lost = False
        """Whether commands get no answer; pods become unready at the next one."""
        self.last_command: list[str] = []
        """The arguments in the address of the last command."""
        self.delays_seconds: list[float] = []
        """How long the next requests that create a pod or begin a command wait."""
        self.port = port
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: set[web.WebSocketResponse] = set()
        self._runner: web.AppRunner | None = None

    def kubeconfig(self, folder: Path) -> Path:
        named = {"name": "here"}
        path = folder / "kubeconfig"
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{**named, "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{**named, "user": {"token": "secret"}}],
            "contexts": [{**named, "context": {"cluster": "here", "user": "here"}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def __enter__(self) -> PodServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run_on_loop(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._run_on_loop(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def delete(self, name: str) -> None:
        """Delete a pod, as another user of the cluster does."""
        self._run_on_loop(self._end(name))

    def _run_on_loop(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it on the server's own thread."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    @property
    def num_streams(self) -> int:
        """Commands that run and whose client is there."""
        return len(self._transports())

    def drop_connections(self) -> None:
        """End every command's connection, as a restart of the API server does."""

        async def drop() -> None:
            for transport in self._transports():
                transport.abort()

        self._run_on_loop(drop())

    def _transports(self) -> list[asyncio.WriteTransport]:
        """Connections of the commands; that of a command that has just ended is gone."""
        requests = [stream._req for stream in list(self._streams)]
        transports = [request.transport for request in requests if request is not None]
        return [transport for transport in transports if transport is not None]

    async def _start(self) -> None:
        application = web.Application(middlewares=[self._admit])
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        application.add_routes(
            [
                web.post(pods, self._create),
                web.get(pods, self._list),
                web.get(pods + "/{name}", self._read),
                web.delete(pods + "/{name}", self._delete),
                web.get(pods + "/{name}/exec", self._exec),
                web.post(reviews, self._review),
            ]
        )
        self._runner = web.AppRunner(application, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def _stop(self) -> None:
        for name in list(self.pods):
            await self._end(name)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._runner is not None
        await self._runner.cleanup()

    @web.middleware
    async def _admit(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if request.headers.get("Authorization") != "Bearer secret":
            return failure(401, "Unauthorized")
        is_exec = request.path.endswith("/exec")
        verbs = {"POST": "create", "DELETE": "delete", "GET": "get"}
        verb = verbs[request.method]
        if not is_exec and "name" not in request.match_info and request.method == "GET":
            verb = "watch" if "watch" in request.query else "list"
        right = f"{verb} pods{'/exec' if is_exec else ''}"
        if right in self.denied and "/pods" in request.path:
            return failure(403, f"pods is forbidden: this account cannot {right}")
        response: web.StreamResponse = await handler(request)
        return response

    async def _create(self, request: web.Request) -> web.Response:
        pod = await request.json()
        kubernetes_validate.validate(pod, "1.37", strict=True)
        await self._delay()
        self.created.append(json.loads(json.dumps(pod)))
        name, runtime_class = pod["metadata"]["name"], pod["spec"].get("runtimeClassName")
        if runtime_class is not None:
            message = f'pod rejected: RuntimeClass "{runtime_class}" not found'
            return failure(403, f'pods "{name}" is forbidden: {message}')
        pod["metadata"] |= {"uid": os.urandom(8).hex(), "namespace": NAMESPACE}
        pod["status"] = {"phase": "Pending"}
        self.pods[name] = pod
        self._run_in_background(self._live(pod))
        return web.json_response(pod, status=201)

    async def _live(self, pod: Pod) -> None:
        """The kubelet's work on a pod."""
        name = pod["metadata"]["name"]
        image = pod["spec"]["containers"][0]["image"]
        if (await podman("image", "exists", image))[0]:
            pulled = f'failed to pull "{image}": not found'
            self._set_state(pod, "Pending", waiting={"reason": "ErrImagePull", "message": pulled})
            await asyncio.sleep(1.0)
            waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}
            self._set_state(pod, "Pending", waiting=waiting)
            return
        arguments = ("--name", name, "--label", f"{LABEL}=yes", *runtime_arguments(pod))
        code, output = await podman("run", "--detach", "--pull", "never", *arguments)
        if self.pods.get(name) is not pod:
            await podman("rm", "--force", "--time", "0", "--ignore", name)
            return
        if code:
            terminated = {"exitCode": 128, "reason": "StartError", "message": output}
            self._set_state(pod, "Failed", terminated=terminated)
            return
        self._set_state(pod, "Running", running={"startedAt": "2026-01-01T00:00:00Z"})
        self._run_in_background(self._look_at_files(pod))
        self._run_in_background(self._end_in_time(pod))
        await podman("wait", name)
        form = "{{.State.ExitCode}} {{.State.OOMKilled}}"
        _, state = await podman("inspect", "--format", form, name)
        if "running" in pod["status"]["containerStatuses"][-1]["state"]:
            code_text, _, is_killed = state.strip().partition(" ")
            reason = "OOMKilled" if is_killed == "true" else "Error"
            code = int(code_text) if code_text.isdigit() else 137
            self._set_state(pod, "Failed", terminated={"exitCode": code, "reason": reason})

    async def _look_at_files(self, pod: Pod) -> None:
        """Measure ephemeral storage as a kubelet does, but more often."""
        name = pod["metadata"]["name"]
        limit = int(pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"])
        folder = (await podman("inspect", "--format", "{{.GraphDriver.Data.UpperDir}}", name))[1]
        while pod["status"]["phase"] == "Running":
            measured = await asyncio.create_subprocess_exec(
                *("du", "--summarize", "--block-size=1", folder.strip()),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            output, _ = await measured.communicate()
            if output and int(output.split()[0]) > limit:
                message = f"Pod ephemeral local storage usage exceeds the limit {limit}."
                await self._fail(pod, "Evicted", message)
            await asyncio.sleep(2.0)

    async def _end_in_time(self, pod: Pod) -> None:
        await asyncio.sleep(pod["spec"]["activeDeadlineSeconds"])
        await self._fail(pod, "DeadlineExceeded", "Pod was active longer than the deadline")

    async def _fail(self, pod: Pod, reason: str, message: str) -> None:
        if pod["status"]["phase"] == "Running":
            pod["status"] |= {"reason": reason, "message": message}
            terminated = {"exitCode": 137, "reason": "Error"}
            self._set_state(pod, "Failed", terminated=terminated)
            await podman("kill", pod["metadata"]["name"])

    def _set_state(self, pod: Pod, phase: str, **state: Any) -> None:
        proxy = {"name": "a-proxy-of-the-cluster", "state": {"running": {}}}
        statuses = [proxy, {"name": "episode", "state": state}]
        pod["status"] |= {"phase": phase, "containerStatuses": statuses}

    async def _end(self, name: str) -> None:
        pod = self.pods.get(name)
        if pod is not None:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            await podman("rm", "--force", "--time", "0", "--ignore", name)
            self.pods.pop(name, None)

    async def _read(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["name"])
        return failure(404, "pods not found") if pod is None else web.json_response(pod)

    async def _delete(self, request: web.Request) -> web.Response:
        pod = self.pods.get(request.match_info["name"])
        if pod is None:
            return failure(404, "pods not found")
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self._run_in_background(self._end(request.match_info["name"]))
        return web.json_response(pod)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            items = self._select_pods(request.query)
            body = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
            return web.json_response(body)
        response = web.StreamResponse()
        await response.prepare(request)
        seconds = int(request.query["timeoutSeconds"])
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                async for event in self._events(request.query):
                    await response.write(json.dumps(event).encode() + b"\n")
        return response

    async def _events(self, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        sent_pods: dict[str, str] = {}
        while True:
            selected = {pod["metadata"]["name"]: pod for pod in self._select_pods(query)}
            for name in sent_pods.keys() - selected.keys():
                del sent_pods[name]
                yield {"type": "DELETED", "object": {"metadata": {"name": name}}}
            for name, pod in selected.items():
                text = json.dumps(pod)
                if sent_pods.get(name) != text:
                    yield {"type": "MODIFIED" if name in sent_pods else "ADDED", "object": pod}
                    sent_pods[name] = text
            await asyncio.sleep(0.05)

    def _select_pods(self, query: Mapping[str, str]) -> list[Pod]:
        named = query.get("fieldSelector", "").removeprefix("metadata.name=")
        terms = [term.split("=") for term in query.get("labelSelector", "").split(",") if term]
        return [
            pod
            for name, pod in self.pods.items()
            if named in ("", name)
            and all(pod["metadata"]["labels"].get(key) == value for key, value in terms)
        ]

    async def _review(self, request: web.Request) -> web.Response:
        review = await request.json()
        attributes = review["spec"]["resourceAttributes"]
        assert attributes["namespace"] == NAMESPACE
        subresource = f"/{attributes['subresource']}" if attributes.get("subresource") else ""
        right = f"{attributes['verb']} {attributes['resource']}{subresource}"
        review["status"] = {"allowed": right not in self.denied}
        return web.json_response(review, status=201)

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        pod = self.pods.get(request.match_info["name"])
        if pod is None:
            return failure(404, "pods not found")
        if pod["status"]["phase"] != "Running" or request.query.get("container") != "episode":
            return failure(500, "container not found")
        self.last_command = request.query.getall("command")
        await self._delay()
        stream = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
        await stream.prepare(request)
        assert stream.ws_protocol == "v4.channel.k8s.io"
        self._streams.add(stream)
        if self.is_node_lost:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
            async for _ in stream:
                pass  # a lost node answers nothing
            return stream
        try:
            await self._run_command(stream, pod["metadata"]["name"], request)
        finally:
            self._streams.discard(stream)
        return stream

    async def _delay(self) -> None:
        if self.delays_seconds:
            await asyncio.sleep(self.delays_seconds.pop(0))

    async def _run_command(
        self, stream: web.WebSocketResponse, name: str, request: web.Request
    ) -> None:
        assert request.query["stdout"] == "true"
        has_input = request.query.get("stdin") == "true"
        process = await asyncio.create_subprocess_exec(
            *podman_command("exec", *(["--interactive"] if has_input else [])),
            *(name, *request.query.getall("command")),
            stdin=asyncio.subprocess.PIPE if has_input else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/proc",
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        errors = asyncio.create_task(process.stderr.read())
        receiving = asyncio.create_task(receive(stream, process))
        try:
            while chunk := await process.stdout.read(1 << 15):
                await stream.send_bytes(b"\x01" + chunk)
            code = await process.wait()
            message = (await errors).decode(errors="replace")
            await stream.send_bytes(b"\x03" + json.dumps(command_status(code, message)).encode())
        except ConnectionError:
            """Whoever asked for it is gone; the program goes on, as on a node."""
        finally:
            receiving.cancel()
            errors.cancel()
            await end(process)
            await stream.close()

    def _run_in_background(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def receive(stream: web.WebSocketResponse, process: asyncio.subprocess.Process) -> None:
    """Standard input; no message of version 4 ends it."""
    async for message in stream:
        if message.type is WSMsgType.BINARY and process.stdin is not None:
            assert message.data[0] == 0
            with contextlib.suppress(ConnectionError):
                process.stdin.write(message.data[1:])
                await process.stdin.drain()


def command_status(code: int, message: str) -> dict[str, Any]:
    """The status that a kubelet writes to the last channel."""
    status = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
    if code == 0:
        return {**status, "status": "Success"}
    unstarted = ("OCI ", "no such container", "container state improper")
    if any(words in message for words in unstarted):
        message = f"error executing command in container: failed to exec in container: {message}"
        return {**status, "status": "Failure", "reason": "InternalError", "message": message}
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: {code}"
    details = {"reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}
    return {**status, "status": "Failure", **details}


def failure(code: int, message: str) -> web.Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message}
    return web.json_response({**body, "code": code}, status=code)
