"""Harness sessions of OpenEnv as their users write them, and Pythons that they run in."""

from __future__ import annotations

import sys
from pathlib import Path

from testkit.other_environments import other_environment

STAND_IN = """
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict


class TrainingTurn(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    node_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    request: dict[str, Any] = {}
    response: dict[str, Any] = {}


class TrainingTrace(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    schema_version: Literal[1] = 1
    turns: list[TrainingTurn]


@dataclass
class VerifyResult:
    env_reward: float | None = None
    done: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class TrainableSession(Protocol):
    def wait_for_completion(self, timeout_s=None): ...
    def fetch_training_trace(self): ...
"""
"""A module in place of openenv, with the classes that the adapter and AGENT use, and is imported in
no time."""

AGENT = """
import os
import subprocess
import threading
import time

import httpx
from openenv.core.harness import TrainingTrace, TrainingTurn, VerifyResult


class Session:
    def __init__(self, task, factory):
        self.task = task
        self.factory = factory
        self.turns = []
        self.closed = threading.Event()

    def ask(self, *messages):
        factory = self.factory
        asked = {"model": factory.model, "messages": messages, "max_tokens": 20, "logprobs": True, **factory.sampling}
        answer = httpx.post(
            f"{factory.base_url}/chat/completions",
            json={**asked, "top_logprobs": 0, "return_token_ids": True},
            headers={"Authorization": f"Bearer {factory.api_key}"},
            timeout=600,
        )
        answer.raise_for_status()
        body = answer.json()
        choice = body["choices"][0]
        prompt = body["prompt_token_ids"]
        sampled = choice["token_ids"]
        self.turns.append(
            TrainingTurn(
                node_id=str(len(self.turns)),
                prompt_token_ids=prompt,
                completion_token_ids=sampled,
                per_token_logps=[one["logprob"] for one in choice["logprobs"]["content"]],
                loss_mask=[0] * len(prompt) + [1] * len(sampled),
                request={"messages": list(messages)},
                response={"choices": [choice]},
            )
        )
        return choice["message"]

    def wait_for_completion(self, timeout_s=None):
        mode = self.task["mode"]
        user = {"role": "user", "content": "what is in the room?"}
        first = self.ask(user)
        tool = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "a door"}
        second = self.ask(user, first, tool)
        if mode == "three":
            self.ask(user, first, tool, second, {**tool, "content": "a window"})
        else:
            self.ask({"role": "user", "content": "and now?"})
        if "note" in self.task:
            left = subprocess.Popen(["sleep", "600"], start_new_session=True)
            with open(self.task["note"], "w") as note:
                note.write(f"{left.pid} {os.getpid()} {os.getcwd()}")
        if mode == "late":
            raise TimeoutError("a limit of its own")
        if mode == "crash":
            os._exit(3)
        if mode == "hang":
            self.closed.wait()
        if mode == "stuck":
            time.sleep(600)
        if mode == "raises":
            raise ConnectionError("no sandbox")
        return 3 if mode == "exit code" else 0

    def fetch_training_trace(self):
        mode = self.task["mode"]
        trained = self.turns[:-1] if mode == "lacks" else list(self.turns)
        if mode == "disagrees":
            trained[1].completion_token_ids[0] += 1
        if mode == "three":
            trained[1].loss_mask = [0] * len(trained[1].loss_mask)
            trained[2].loss_mask[-2] = 0
        if mode == "other schema":
            return TrainingTrace.model_construct(schema_version=2, turns=[])
        return TrainingTrace(turns=trained)

    def verify(self, transcript, final_state=None):
        assert transcript[-1]["role"] == "assistant"
        reward = None if self.task["mode"] == "no reward" else 0.75
        return VerifyResult(env_reward=reward, done=True, metrics={"rooms": 2, "name": "hall"})

    def close(self):
        self.closed.set()
        if self.task["mode"] == "stuck":
            time.sleep(600)
        if "closed" in self.task:
            open(self.task["closed"], "w").close()


class Factory:
    def __init__(self, base_url, api_key, model, sampling, door="a door"):
        assert (base_url, api_key) == (os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
        self.base_url = base_url
        self.api_key = api_key
        self.model = model
        self.sampling = sampling

    def create(self, task, seed=None, episode_id=None):
        if task["mode"] == "untraced":
            return object()
        return Session(task, self)
"""  # noqa: E501
"""A session whose agent asks for three answers: two of one conversation, and one of another."""

CAPTURED = '''
import socket
import subprocess
import sys

from openenv.core.harness import ResourceSession, ResourceSessionFactory, VerifyResult
from openenv.core.harness.capture import CaptureServer, to_training_trace
from openenv.core.harness.capture.export import export_session

AGENT = """
import openai

client = openai.OpenAI(max_retries=0)
tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
messages = [{"role": "user", "content": "what is in the room?"}]
for _ in range(3):
    stream = client.chat.completions.create(model="any", messages=messages, tools=tools, max_tokens=20, stream=True)
    text = ""
    calls = {}
    for part in stream:
        for choice in part.choices:
            text += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                calls[call.index] = call
    found = [
        {"id": one.id, "type": "function", "function": {"name": one.function.name, "arguments": one.function.arguments}}
        for one in calls.values()
    ]
    messages.append({"role": "assistant", "content": text, "tool_calls": found})
    messages += [{"role": "tool", "tool_call_id": one["id"], "content": "a door"} for one in found]
client.chat.completions.create(model="any", messages=[{"role": "user", "content": "a title"}], max_tokens=20)
"""


class CapturedSession(ResourceSession):
    def __init__(self, factory, episode_id):
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.server = CaptureServer(llm_url=factory.base_url, model=factory.model, api_key=factory.api_key, port=port)
        self.server.start(timeout_s=300)
        self.session = self.server.registry.create(episode_id, purpose="train", sampling=factory.sampling)
        keys = {"OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1", "OPENAI_API_KEY": self.session.session_id}
        self.agent = subprocess.Popen([sys.executable, "-c", AGENT], env={"PATH": "", **keys})

    def initial_messages(self):
        return []

    def list_tools(self):
        return []

    def call_tool(self, name, arguments):
        raise NotImplementedError

    def wait_for_completion(self, timeout_s=None):
        return self.agent.wait(600)

    def fetch_training_trace(self):
        return to_training_trace(self.session.graph, export_session(self.session))

    def verify(self, transcript, final_state=None):
        return VerifyResult(env_reward=len(self.session.graph.nodes()) / 4, done=True)

    def close(self):
        self.agent.kill()
        self.server.stop()


class CapturedFactory(ResourceSessionFactory[CapturedSession]):
    def __init__(self, *, base_url, api_key, model, sampling):
        self.base_url = base_url
        self.api_key = api_key
        self.model = model
        self.sampling = sampling

    def create(self, task, seed=None, episode_id=None):
        return CapturedSession(self, episode_id)
'''  # noqa: E501
"""A session whose agent is a program that OpenEnv's own proxy records."""


def stand_in(folder: Path) -> Path:
    """A Python that has STAND_IN as openenv."""
    package = folder / "openenv" / "core" / "harness"
    package.mkdir(parents=True)
    for subpackage in (package, package.parent, package.parent.parent):
        (subpackage / "__init__.py").write_text(STAND_IN if subpackage == package else "")
    (package / "training.py").touch()
    python = folder / "python"
    python.write_text(
        f"#!{sys.executable}\nimport runpy, sys\nsys.path.insert(0, {str(folder)!r})\nsys.argv = "
        "sys.argv[2:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    python.chmod(0o755)
    return python


def installed_openenv() -> Path:
    """The Python of an environment with openenv. Skips if it cannot be installed."""
    return other_environment("openenv")
