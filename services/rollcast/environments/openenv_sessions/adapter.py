"""`INTERPRETER -I adapter.py look|serve`: harness sessions of OpenEnv 0.10.0, in their virtual
environment.

    look    are openenv and the factory there?     {"factory"} on standard input, {} or {"failed"}
                                                   on output
    serve   sessions, many at the same time        four bytes of length, then JSON, on the socket 0

    {"factory", "arguments"}                       -> {"ready": true} | {"failed": why}
    {"do": "run", "id", "task", "seed", "episode",
     "base_url", "token", "model", "sampling"}     -> {"id", "reward", "exit", "late", "calls",
                                                       "metrics"}
                                                      | {"id", "unusable"} | {"id", "failed"}
    {"do": "cancel", "id"}                         -> {"id", "failed": "cancelled"}

    adapter --fork--> guard --fork--> session --> agent ...
                      the guard adopts and kills what a session leaves behind

A session has its own process, forked after the import of openenv (10 s of a core). Its agent asks
the endpoint, and calls of its TrainingTrace come back as digests of their tokens, with those
without loss. A socket that closes ends the adapter. Of Rollcast it loads two files, by their paths.
"""

import array
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import inspect
import json
import os
import runpy
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RELEASE = "0.10.0"
PROCESSES = Path(__file__).parents[2] / "processes"
"""Folder of Rollcast's files that import the standard library alone."""
frames = SimpleNamespace(**runpy.run_path(str(PROCESSES / "frames.py")))
tree = SimpleNamespace(**runpy.run_path(str(PROCESSES / "tree.py")))


def call_digest(prompt: Sequence[int], sampled: Sequence[int]) -> str:
    """The digest by which both sides know a call: of all tokens before it, and its own.

    Raises OverflowError.
    """
    tokens = array.array("q", [len(prompt), *prompt, *sampled]).tobytes()
    return hashlib.blake2b(tokens, digest_size=16).hexdigest()


def find_missing_dependency(factory: str) -> str | None:
    """Why this Python cannot make the factory; None = it may.

    Imports neither openenv nor the factory.
    """
    package_spec = importlib.util.find_spec("openenv")
    if package_spec is None or not package_spec.submodule_search_locations:
        return f"has no openenv; install openenv=={RELEASE} there"
    package_folder = Path(next(iter(package_spec.submodule_search_locations)))
    if not (package_folder / "core" / "harness" / "training.py").is_file():
        release = importlib.metadata.version("openenv")
        return f"has openenv {release}; install openenv=={RELEASE} there"
    module_name = factory.rpartition(":")[0]
    package = module_name.partition(".")[0]
    if module_name.endswith(".py") or importlib.util.find_spec(package) is not None:
        return None
    return f"has no package {package!r}; install it there, or correct factory"


def load_factory(factory: str) -> Callable[..., Any]:
    """The object that the name stands for. Raises whatever its import raises."""
    module_name, _, name = factory.rpartition(":")
    if module_name.endswith(".py"):
        sys.path.insert(0, os.path.dirname(module_name))
        module_name = Path(module_name).stem
    factory_function: Callable[..., Any] = getattr(importlib.import_module(module_name), name)
    return factory_function


def make_factory(build: Callable[..., Any], request: Mapping[str, Any]) -> Any:
    """The factory. Arguments of the run file win over those of the session."""
    session_arguments = {"llm_url": request["base_url"], "api_key": request["token"]}
    session_arguments.update((name, request[name]) for name in ("base_url", "model", "sampling"))
    parameters = inspect.signature(build).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = {parameter.name for parameter in parameters if parameter.kind in kinds}
    accepted_arguments = {name: value for name, value in session_arguments.items() if name in names}
    return build(**{**accepted_arguments, **request["arguments"]})


def calls(trace: Any) -> list[list[Any]]:
    """The digest of each call, and the ranges of its own tokens that carry no loss.

    Raises OverflowError.
    """
    call_records = []
    for turn in trace.turns:
        masked = ranges(turn.loss_mask[len(turn.prompt_token_ids) :])
        call_records.append([call_digest(turn.prompt_token_ids, turn.completion_token_ids), masked])
    return call_records


def ranges(mask: Sequence[int]) -> list[list[int]]:
    """The stretches of zeros, [start, end)."""
    stretches: list[list[int]] = []
    for index in (index for index, has_loss in enumerate(mask) if not has_loss):
        if stretches and stretches[-1][1] == index:
            stretches[-1][1] += 1
        else:
            stretches.append([index, index + 1])
    return stretches


def transcript(trace: Any) -> list[Any]:
    """The messages of the last call and its answer, as far as the trace has them."""
    if not trace.turns:
        return []
    last = trace.turns[-1]
    message = (last.response.get("choices") or [{}])[0].get("message")
    return [*(last.request.get("messages") or []), *([message] if message else [])]


class Player:
    """One session, in its own process."""

    def __init__(self, build: Callable[..., Any], request: Mapping[str, Any]) -> None:
        self._build = build
        self._request = request
        self._session: Any = None
        self._closing = threading.Lock()

    def play(self) -> dict[str, Any]:
        """The answer to the generator."""
        try:
            return self._outcome()
        except Exception as error:
            return {"failed": frames.error_line(error)}
        finally:
            self.close()

    def close(self) -> None:
        """Close the session, once."""
        with self._closing:
            session = self._session
            self._session = None
            if session is not None:
                try:
                    session.close()
                except Exception as error:
                    print(f"close failed: {frames.error_line(error)}", flush=True)

    def _outcome(self) -> dict[str, Any]:
        from openenv.core.harness import TrainableSession, TrainingTrace

        request = self._request
        factory = make_factory(self._build, request)
        session = factory.create(
            task=request["task"], seed=request["seed"], episode_id=request["episode"]
        )
        self._session = session
        if not isinstance(session, TrainableSession):
            return {
                "unusable": f"has sessions ({type(session).__name__}) without fetch_training_trace"
            }
        is_late = False
        code: Any = 0
        try:
            code = session.wait_for_completion()
        except TimeoutError:
            is_late = True
        try:
            trace = TrainingTrace.model_validate(session.fetch_training_trace().model_dump())
            traced = calls(trace)
        except (ValueError, OverflowError) as error:
            return {"unusable": f"has no TrainingTrace of schema 1 ({frames.error_line(error)})"}
        verdict = session.verify(transcript(trace))
        reward = verdict.env_reward
        return {
            "reward": None if reward is None else float(reward),
            "exit": int(code or 0),
            "metrics": frames.numbers_by_name(getattr(verdict, "metrics", None)),
            "late": is_late,
            "calls": traced,
        }


@dataclass(eq=False)
class Live:
    """A session that runs, as the adapter sees it."""

    number: int
    guard: int
    connection: socket.socket
    killed_at: float | None = None
    """Monotonic second at which it is killed; None = it is not cancelled."""


class ForkedSessions:
    """The sessions of one environment."""

    def __init__(
        self, connection: socket.socket, build: Callable[..., Any], arguments: Mapping[str, Any]
    ) -> None:
        self._connection = connection
        self._build = build
        self._arguments = arguments
        self._live: dict[int, Live] = {}
        self._guards: set[int] = set()
        self._selector = selectors.DefaultSelector()

    def serve(self) -> None:
        """Take requests until the connection closes."""
        self._selector.register(self._connection, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(0.5):
                if key.data is not None:
                    self._end(key.data)
                    continue
                request = frames.receive(self._connection, frames.MAX_REQUEST_BYTES)
                if request is None:
                    return
                self._take(request)
            self._look()

    def _take(self, request: dict[str, Any]) -> None:
        """Begin or cancel a session."""
        live = self._live.get(request["id"])
        if request["do"] == "run":
            self._begin(request)
        elif live is not None:
            # How long a cancelled session may take to release its resources elsewhere
            live.killed_at = time.monotonic() + 5.0
            with contextlib.suppress(OSError):
                live.connection.shutdown(socket.SHUT_WR)

    def _begin(self, request: dict[str, Any]) -> None:
        adapter_socket, session_socket = socket.socketpair()
        parent = os.getpid()
        guard = os.fork()
        if guard == 0:
            try:
                connections = [live.connection for live in self._live.values()]
                for inherited_socket in (adapter_socket, self._connection, *connections):
                    inherited_socket.close()
                self._selector.close()
                player = Player(self._build, {**request, "arguments": self._arguments})
                guard_session(session_socket, player, request, parent)
            finally:
                os._exit(1)
        session_socket.close()
        live = Live(request["id"], guard, adapter_socket)
        self._live[live.number] = live
        self._guards.add(guard)
        self._selector.register(adapter_socket, selectors.EVENT_READ, live)

    def _end(self, live: Live) -> None:
        """Pass a session's answer on. Its guard kills the processes that it has left."""
        try:
            answer = frames.receive(
                live.connection, frames.MAX_ANSWER_BYTES, time.monotonic() + 5.0
            )
        except (OSError, frames.FrameError) as error:
            answer = {"failed": f"its process sent no answer ({frames.error_line(error)})"}
        if live.killed_at is not None:
            answer = {"failed": "cancelled"}
        send(self._connection, {**(answer or {"failed": "its process ended"}), "id": live.number})
        self._selector.unregister(self._live.pop(live.number).connection)
        live.connection.close()

    def _look(self) -> None:
        for live in self._live.values():
            if live.killed_at is not None and time.monotonic() > live.killed_at:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(live.guard, signal.SIGTERM)
        for guard in list(self._guards):
            if os.waitpid(guard, os.WNOHANG)[0]:
                self._guards.discard(guard)


def guard_session(
    connection: socket.socket, player: Player, request: Mapping[str, Any], parent: int
) -> None:
    """Play a session in a child, then kill all that it has left, in any process group."""
    folder = tempfile.mkdtemp(prefix="session-")

    def run() -> None:
        os.setsid()
        os.chdir(folder)
        os.environ.update(
            TMPDIR=folder, OPENAI_BASE_URL=request["base_url"], OPENAI_API_KEY=request["token"]
        )
        tempfile.tempdir = None
        play(connection, player)

    def watch(session: int) -> int:
        connection.close()  # else the end of the session would not be noticed
        code: int = tree.wait_for(session)
        return code

    tree.guard(run, parent, watch, lambda: shutil.rmtree(folder, ignore_errors=True))
    os._exit(0)


def play(connection: socket.socket, player: Player) -> None:
    """Play the session until it ends or the connection closes."""

    def end_with_connection() -> None:
        connection.recv(1)
        player.close()
        os._exit(0)

    threading.Thread(target=end_with_connection, daemon=True).start()
    try:
        send(connection, player.play())
    finally:
        os._exit(0)  # whatever threads the session has left


def send(connection: socket.socket, message: Mapping[str, Any]) -> None:
    connection.sendall(frames.pack_message(message))


def serve(connection: socket.socket) -> None:
    """Import openenv and the factory, and play sessions until the connection closes."""
    request = frames.receive(connection, frames.MAX_REQUEST_BYTES)
    if request is None:
        return
    factory = request["factory"]
    missing_dependency = find_missing_dependency(factory)
    if missing_dependency is not None:
        send(connection, {"failed": missing_dependency})
        return
    try:
        import openenv.core.harness  # noqa: F401  # for all sessions together

        build = load_factory(factory)
    except Exception as error:
        send(
            connection, {"failed": f"cannot load factory {factory!r} ({frames.error_line(error)})"}
        )
        return
    send(connection, {"ready": True})
    ForkedSessions(connection, build, request["arguments"]).serve()


def main() -> None:
    if sys.argv[1] == "look":
        missing_dependency = find_missing_dependency(json.load(sys.stdin)["factory"])
        json.dump({} if missing_dependency is None else {"failed": missing_dependency}, sys.stdout)
        return
    # Programs that sessions start must not have the socket.
    connection = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    serve(connection)


if __name__ == "__main__":
    main()
