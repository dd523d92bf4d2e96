"""`INTERPRETER -I adapter.py look|rows|serve`: verifiers 0.4.0 itself, in its virtual environment.

    look    is the taskset there?                         {"taskset"} on standard input,
                                                          {} or {"failed"} on output
    rows    the tasks of the taskset, a row in each line  {"taskset", "arguments", "num_tasks",
                                                           "seed"} on standard input
    serve   rollouts, many at the same time               four bytes of length, then JSON,
                                                          on the socket 0

    {"taskset", "arguments"}            -> {"ready": true} | {"failed": why}
    {"do": "run", "id", "task",
     "model", "base_url", "token"}      -> {"id", "reward", "metrics", "stop_condition",
                                           "answers"}
                                           | {"id", "failed"}
    {"do": "cancel", "id"}              -> {"id", "failed": "cancelled"}

verifiers asks the endpoint at `base_url` for completions; what it recorded of them comes back as
digests. A socket that closes ends the adapter. Of Rollcast it loads one file, by its path.
"""

import asyncio
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import random
import runpy
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

RELEASE = "0.4.0"
frames = SimpleNamespace(
    **runpy.run_path(str(Path(__file__).parents[2] / "processes" / "frames.py"))
)
"""A file of Rollcast's that imports the standard library alone."""
MAX_FAILURE_CHARACTERS = 500
LOCAL_HARNESS = "null"
"""verifiers' harness that runs no code of the model: a chat with the taskset's tools."""
FAILED_STAGES = ("setup_timeout", "finalize_timeout", "scoring_timeout")
"""Stops after which a reward says nothing about the model."""


def answer_digest(content: str | None, calls: Sequence[tuple[str, str, str]]) -> str:
    """The digest by which both sides know an answer: of its text, and id, name and arguments of its
    calls.
    """
    text = json.dumps([content or "", [list(call) for call in calls]])
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def find_missing_dependency(taskset: str) -> str | None:
    """Why this Python cannot run the taskset; None = it may.

    Imports neither verifiers nor the taskset.
    """
    package_spec = importlib.util.find_spec("verifiers")
    if package_spec is None or not package_spec.submodule_search_locations:
        return f"has no verifiers; install verifiers=={RELEASE} there"
    release = importlib.metadata.version("verifiers")
    if release != RELEASE:
        return f"has verifiers {release}; install verifiers=={RELEASE} there"
    module = taskset.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_").lower()
    shipped = Path(next(iter(package_spec.submodule_search_locations)), "v1", "tasksets", module)
    if (
        shipped.is_dir()
        or shipped.with_suffix(".py").is_file()
        or importlib.util.find_spec(module) is not None
    ):
        return None
    return f"has no taskset {taskset!r}; install the package {module} there, or correct taskset"


def environment_config(taskset: str, arguments: dict[str, Any]) -> Any:
    """verifiers' configuration of the environment.

    A seat without a harness gets the taskset's own, else LOCAL_HARNESS. It runs as a process here
    if it does not say where, and the harness is the environment's own choice and needs no
    container: one that the run file names, such as verifiers' `bash`, may run commands of the
    model. Raises ValueError for a seat that runs in a cloud, which is verifiers' default.
    """
    import verifiers.v1 as vf
    from verifiers.v1.runtimes import runtime_is_local

    config_fields = {**arguments, "taskset": {**(arguments.get("taskset") or {}), "id": taskset}}
    usual_harness = taskset if vf.default_harness_id(taskset) == taskset else LOCAL_HARNESS
    seats = {
        name: field.default
        for name, field in vf.env_config_type(
            taskset, config_fields.get("id") or ""
        ).model_fields.items()
        if isinstance(field.default, vf.AgentConfig)
    }
    for name, seat in seats.items():
        seat_fields = {
            "harness": {"id": usual_harness},
            **seat.model_dump(exclude_unset=True),
            **(config_fields.get(name) or {}),
        }
        is_named = "harness" in (config_fields.get(name) or {})
        harness = None if is_named else seat_fields["harness"]["id"]
        if harness is not None and "runtime" not in seat_fields:
            kind = vf.load_harness(vf.harness_config_type(harness)(id=harness))
            if not kind.NEEDS_CONTAINER:
                seat_fields["runtime"] = {"type": "subprocess"}
        config_fields[name] = seat_fields
    config = vf.resolve_env_config(config_fields)
    for name in seats:
        runtime = getattr(config, name).runtime
        if not runtime_is_local(runtime):
            raise ValueError(
                f"seat {name} runs in the cloud {runtime.type}; set arguments.{name}.runtime to "
                "{type: podman}, or {type: subprocess} for a harness that needs no container"
            )
    return config


def make_row(task: Any) -> dict[str, Any]:
    """A task as a row of a data set: its chat, and all that builds it again."""
    from verifiers.v1.types import content_text

    data = task.data
    if data.prompt is None:
        raise ValueError(
            f"task {data.idx} has no prompt: its user begins, and a row needs a prompt"
        )
    system = (
        [] if data.system_prompt is None else [{"role": "system", "content": data.system_prompt}]
    )
    if isinstance(data.prompt, str):
        chat_messages = [{"role": "user", "content": data.prompt}]
    else:
        chat_messages = [
            {"role": message.role, "content": content_text(message.content)}
            for message in data.prompt
        ]
    return {
        "prompt": [*system, *chat_messages],
        "task": data.model_dump(mode="json", exclude_none=True),
    }


def select_tasks(tasks: Any, num_tasks: int | None, seed: int) -> Iterable[Any]:
    """All tasks, or that many: drawn from a taskset with an end, else the seed's block.

    Another seed gives other tasks of an endless one, if the number is the same. Raises ValueError
    for an endless one without a number.
    """
    if num_tasks is None:
        if not tasks.bounded:
            raise ValueError("the taskset has no end; give the number of tasks as --tasks")
        all_tasks: Iterable[Any] = tasks
        return all_tasks
    # Tasksets that draw their tasks do so by this.
    random.seed(seed)
    view = tasks.shuffle(seed) if tasks.bounded else tasks.skip(seed * num_tasks)
    selected_tasks: Iterable[Any] = view.take(num_tasks)
    return selected_tasks


def write_rows(
    taskset: str, arguments: dict[str, Any], num_tasks: int | None, seed: int, output: Any
) -> None:
    """Write the rows, or one line {"failed"} in place of the next."""
    try:
        import verifiers.v1 as vf

        tasks = vf.load_taskset(environment_config(taskset, arguments).taskset)
        num_written = 0
        for task in select_tasks(tasks, num_tasks, seed):
            output.write(json.dumps(make_row(task)) + "\n")
            num_written += 1
        if num_tasks is not None and num_written < num_tasks:
            raise ValueError(f"the taskset has {num_written} tasks, not {num_tasks}")
    except (Exception, SystemExit) as error:
        output.write(json.dumps({"failed": frames.error_line(error)}) + "\n")
    output.flush()


def outcome(episode: Any) -> dict[str, Any]:
    """The results of an episode that the generator needs."""
    if not episode.ok:
        errors = [*episode.errors, *(error for trace in episode.traces for error in trace.errors)]
        error_message = (
            " ".join(f"{errors[-1].type}: {errors[-1].message}".split())
            if errors
            else "it gave no reason"
        )
        return {"failed": error_message[:MAX_FAILURE_CHARACTERS]}
    if len(episode.traces) != 1:
        return {
            "unusable": (
                f"played {len(episode.traces)} agents, and an episode of one agent is trained"
            )
        }
    (trace,) = episode.traces
    if trace.stop_condition in FAILED_STAGES or None in trace.rewards.values():
        return {"failed": f"no reward was computed ({trace.stop_condition})"}
    reward = float(trace.reward) if trace.rewards else None
    # verifiers' own None is of a metric that was not computed.
    metrics = {
        name: value for name, value in list(trace.metrics.items())[:100] if value is not None
    }
    return {
        "reward": reward,
        "stop_condition": trace.stop_condition,
        "answers": answers(trace),
        "metrics": frames.numbers_by_name(metrics),
    }


def answers(trace: Any) -> list[list[Any]]:
    """The digest of each sampled message, the number of the sampled one before it, and whether it
    is trained.
    """
    trained = {id(node) for branch in trace.branches if branch.trainable for node in branch.nodes}
    numbers: dict[int, int] = {}
    answer_records: list[list[Any]] = []
    for index, node in enumerate(trace.nodes):
        if not node.sampled:
            continue
        ancestor = node.parent
        # Messages that were not sampled come between two answers.
        while ancestor is not None and ancestor not in numbers:
            ancestor = trace.nodes[ancestor].parent
        calls = [(call.id, call.name, call.arguments) for call in node.message.tool_calls or ()]
        digest = answer_digest(node.message.content, calls)
        answer_records.append(
            [digest, None if ancestor is None else numbers[ancestor], id(node) in trained]
        )
        numbers[index] = len(numbers)
    return answer_records


class Rollouts:
    """The rollouts of one environment."""

    def __init__(self, environment: Any, writer: asyncio.StreamWriter) -> None:
        self._environment = environment
        self._writer = writer
        self._running: dict[int, asyncio.Task[None]] = {}

    def take(self, request: dict[str, Any]) -> None:
        """Begin or cancel a rollout."""
        number = request["id"]
        if request["do"] == "cancel":
            if number in self._running:
                self._running[number].cancel()
            return
        task = asyncio.get_running_loop().create_task(self._run(number, request))
        self._running[number] = task
        task.add_done_callback(lambda _: self._running.pop(number))

    async def close(self) -> None:
        """Cancel all."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, number: int, request: dict[str, Any]) -> None:
        # verifiers reads keys from variables alone; programs that it starts inherit none with
        # API_KEY in its name.
        variable = f"ROLLCAST_API_KEY_{number}"
        os.environ[variable] = request["token"]
        try:
            answer = outcome(await self._episode(request, variable))
        except asyncio.CancelledError:
            answer = {"failed": "cancelled"}
        except (Exception, SystemExit) as error:
            answer = {"failed": frames.error_line(error)}
        finally:
            del os.environ[variable]
        send(self._writer, {"id": number, **answer})

    async def _episode(self, request: dict[str, Any], variable: str) -> Any:
        import verifiers.v1 as vf

        kind = type(self._environment.taskset).task_type()
        data = kind.data_type().model_validate(request["task"])
        task = kind(data, self._environment.config.taskset.task)
        client = vf.EvalClientConfig(base_url=request["base_url"], api_key_var=variable)
        return await self._environment.run_episode(
            task, vf.ModelContext(model=request["model"], client=client)
        )


def make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any
) -> asyncio.Task[Any]:
    """A task whose SystemExit is a failure of its own: asyncio would end the loop, and with it the
    rollouts of all episodes.
    """

    async def run() -> Any:
        try:
            return await coroutine
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error.code}") from error

    task = asyncio.Task(run(), loop=loop, **options)
    # One that is cancelled before its first step never awaits it.
    task.add_done_callback(lambda _: coroutine.close())
    return task


def send(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(frames.pack_message(message))


async def serve(connection: socket.socket) -> None:
    """Load the environment, and run rollouts until the connection closes."""
    asyncio.get_running_loop().set_task_factory(make_task)
    reader, writer = await asyncio.open_connection(sock=connection)
    request = await frames.read(reader, frames.MAX_REQUEST_BYTES)
    try:
        missing_dependency = find_missing_dependency(request["taskset"])
        if missing_dependency is not None:
            send(writer, {"failed": missing_dependency})
            return
        import verifiers.v1 as vf

        environment = vf.load_environment(
            environment_config(request["taskset"], request["arguments"])
        )
        async with environment.serving():
            rollouts = Rollouts(environment, writer)
            send(writer, {"ready": True})
            try:
                while True:
                    rollouts.take(await frames.read(reader, frames.MAX_REQUEST_BYTES))
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                await rollouts.close()
    except Exception as error:
        send(
            writer,
            {"failed": f"cannot load taskset {request['taskset']!r} ({frames.error_line(error)})"},
        )
    finally:
        writer.close()


def main() -> None:
    # Tasksets may print, and the programs that they start must not have the socket.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if sys.argv[1] == "serve":
        connection = socket.socket(fileno=os.dup(0))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        asyncio.run(serve(connection))
        return
    request = json.load(sys.stdin)
    missing_dependency = find_missing_dependency(request["taskset"])
    if sys.argv[1] == "look" or missing_dependency is not None:
        json.dump({} if missing_dependency is None else {"failed": missing_dependency}, output)
        output.flush()
        return
    write_rows(
        request["taskset"], request["arguments"], request["num_tasks"], request["seed"], output
    )


if __name__ == "__main__":
    main()
