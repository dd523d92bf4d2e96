"""The grader's process.

start: no credential of others is held, or it refuses; the sandbox proves that it grades and
       contains, or it refuses
serve: gRPC for generators, probes and metrics over HTTP
stop:  at SIGTERM or SIGINT no call gets a turn and waiting calls are refused; running gradings
       finish
"""

import json
import time

import grpc

from rollcast.config.connections import Redis, Rpc
from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.connections.grpc import MAX_GRADING_BYTES, start_server
from rollcast.connections.http import HttpServer, listen, service_routes
from rollcast.connections.port_files import publish_port
from rollcast.grader.rpc import GradingService
from rollcast.grader.turns import Turns
from rollcast.runfolder.run_secrets import secret_place
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.sandbox.client import GRACE_SECONDS, Sandbox
from rollcast.tasks.sandbox.cores import gradings_at_once
from rollcast.tasks.sandbox.limits import Limits
from rollcast.tasks.verifiers import CODE
from rollcast.telemetry.exporter import Exporter
from rollcast.telemetry.logging import get_logger
from rollcast.telemetry.stop_signal import StopSignal
from rollcast.wire.grading_pb2_grpc import add_GradingServicer_to_server

PROOF_LIMITS = Limits(deadline_seconds=60.0, seconds_per_test=60.0, memory_bytes=1 << 30)
"""Wide: a machine that is slow at its start is no reason to refuse."""
_PROOF = """```python
import os, socket

def escapes():
    found = []
    for name, attempt in {
        "socket": socket.socket,
        "process": os.fork,
        "file": lambda: open("/tmp/escaped", "w"),
        "signal": lambda: os.kill(os.getppid(), 0),
    }.items():
        try:
            attempt()
        except OSError:
            continue
        found.append(name)
    return found
```"""
_CONTAINED = json.dumps(
    {"kind": "calls", "entry_point": "escapes", "cases": [{"arguments": [], "output": []}]}
)

log = get_logger()


def serve(config: RunConfig) -> int:
    """Run until a signal; returns the exit code.

    Raises UserError if it holds credentials, a port cannot be had, or this machine cannot contain
    programs.
    """
    stop = StopSignal()
    refuse_credentials(config.redis, config.rpc)
    settings = config.grader
    exporter = Exporter(config.run)
    verifiers = Verifiers.from_tasks(config.tasks)
    sandbox = Sandbox(
        config.tasks.grading.model_copy(update={"sandbox": settings.sandbox}), verifiers
    )
    processes, reduced = gradings_at_once(settings.processes, "grader.processes")
    if reduced:
        log.warning(reduced)
    turns = Turns(running=processes, waiting=settings.queue, exporter=exporter)
    server: grpc.Server | None = None

    def ready() -> tuple[bool, str]:
        if stop():
            return False, "stopping"
        return (True, "grades") if server is not None else (False, "the sandbox is starting")

    listener = listen(config.http.bind, settings.http_port, setting="grader.http_port")
    http = HttpServer(service_routes(exporter.render, ready), listener, config.http)
    http.start()
    try:
        prove(sandbox, settings.sandbox)
        service = GradingService(sandbox, verifiers, turns, config.tasks.grading, exporter)
        import_verifiers(
            service,
            [name for name in verifier_names(config.tasks) if verifiers.find(name).sandboxed],
        )
        server, port = start_server(
            config.grader_rpc,
            lambda grpc_server: add_GradingServicer_to_server(service, grpc_server),  # type: ignore[no-untyped-call]
            setting="grader.port",
            # Threads in addition to those that grade and wait, so that one more caller is refused
            # immediately
            max_calls=settings.processes + settings.queue + 16,
            max_message_bytes=MAX_GRADING_BYTES,
            secret_place=secret_place(config.run_folder, "grader.token"),
        )
        publish_port(config.run_folder, "grader", http.port)
        publish_port(config.run_folder, "grader-grpc", port)
        log.info("grader serves", grpc=port, http=http.port, sandbox=settings.sandbox)
        stop.wait()
        log.info("stopping")
        return 0
    finally:
        turns.close()
        if server is not None:
            grace = config.tasks.grading.longest_wall_seconds + GRACE_SECONDS
            # Time after a grading's longest duration for connections to close
            server.stop(grace).wait(grace + 5.0)
        sandbox.close()
        http.stop()


def import_verifiers(service: GradingService, names: list[str]) -> None:
    """Side by side; one that takes longer than 30 s goes on being imported while others are
    served.
    """
    threads = [service.start(name) for name in names]
    # 30.0: time that a start waits for verifiers to be imported.
    deadline = time.monotonic() + 30.0
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def refuse_credentials(redis: Redis, rpc: Rpc) -> None:
    """Raises UserError if the process was given a secret that it has no use for, and a program
    could be after.
    """
    for setting, variable, secret in (
        ("redis.password", "ROLLCAST_REDIS_PASSWORD", redis.password),
        ("rpc.token", "ROLLCAST_RPC_TOKEN", rpc.token),
    ):
        if secret is not None:
            raise UserError(
                f"{setting} (not shown): the grader must not hold it; take it out of the grader's "
                f"run file and environment, and give it to the others as {variable}"
            )


def prove(sandbox: Sandbox, kind: str) -> None:
    """Grades a program that tries to get out.

    Raises UserError if it did, or if no program runs at all.
    """
    sandbox.check(CODE)
    grade = sandbox.grade(CODE, _PROOF, _CONTAINED, limits=PROOF_LIMITS)
    if grade.status == "wrong":
        raise UserError(
            f"grader.sandbox = {kind!r}: a program that was tried here got out; use another runtime"
        )
    if grade.status != "ok":
        raise UserError(
            f"grader.sandbox = {kind!r}: no program can be run here (status {grade.status}); use "
            "another runtime, or give the grader more processor time and memory"
        )
