"""Tasksets as `vf-init` of verifiers writes them, completed as their author would, in a virtual environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = "ROLLCAST_VERIFIERS_TESTS"
COMMAND = f"{FOLDER}=FOLDER pytest tests/environments tests/generator/endpoint -k verifiers"
RELEASE = "verifiers==0.4.0"
INSTALL_SECONDS = 1_200.0

REWARD = '        raise NotImplementedError("Score the rollout and return a float (e.g. in [0, 1]).")\n'
DATA = '    """One row\'s data. Add task-specific fields here, such as a reference answer."""\n'
TOOL = '''    def echo(self, text: str) -> str:
        """Return the given text unchanged (replace with a real tool)."""
        return text
'''
LOOK = '''    def look(self) -> str:
        """Look around."""
        return "a door"
'''
PREFIX = '    TOOL_PREFIX = "rooms"\n'
NO_PREFIX = "    TOOL_PREFIX = None\n"
"""The scripted model calls `look`."""
ROOMS_REWARD = """        return sum(message.content == "a door" for message in trace.tool_messages) / 4
"""
AGENTS_REWARD = """        if self.data.mode == "no reward":
            raise ValueError("nothing to compare with")
        return len(trace.assistant_messages) / 4
"""
LAUNCH = """        raise NotImplementedError(
            "Implement launch: run your agent in `runtime`, pointing its model calls at "
            "`endpoint` with bearer token `secret`."
        )
"""
NEEDS = "    APPENDS_SYSTEM_PROMPT = True\n"
LOCAL = f"{NEEDS}    NEEDS_CONTAINER = False\n"
AGENT = """        import os
        import time

        from openai import AsyncOpenAI

        def client(base_url, key):
            return AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)

        async def answer(client, messages):
            completion = await client.chat.completions.create(model=ctx.model, messages=messages, max_tokens=20)
            return completion.choices[0].message.model_dump(exclude_none=True)

        own = client(endpoint, secret)
        user = {"role": "user", "content": data.prompt}
        first = await answer(own, [user])
        if data.mode == "branches":
            call = first["tool_calls"][0]["id"]
            await answer(own, [user, first, {"role": "tool", "tool_call_id": call, "content": "a door"}])
            await answer(own, [{"role": "user", "content": "and now?"}])
        elif data.mode == "beside":
            beside = client(ctx.client.base_url, os.environ[ctx.client.api_key_var])
            await answer(beside, [{"role": "user", "content": "and now?"}])
        elif data.mode == "raises":
            raise ValueError("no idea")
        elif data.mode == "crash":
            os._exit(3)
        elif data.mode == "hang":
            time.sleep(600)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
"""


def installed_tasksets(folder: Path) -> Path:
    """The Python of the folder that the variable names, with verifiers and both tasksets. Skips without one."""
    if FOLDER not in os.environ:
        pytest.skip(f"takes minutes: {COMMAND} installs {RELEASE} into FOLDER, once")
    home = Path(os.environ[FOLDER]).resolve()
    python = home / "bin" / "python"
    ready = home / f"has-{RELEASE}"
    if not ready.exists():
        _run([sys.executable, "-m", "uv", "venv", "--quiet", "--allow-existing", "--python", sys.executable, home])
        _run([*_pip(python), RELEASE, "uv"])  # verifiers starts its harnesses by uv
        ready.touch()
    for name, option, changes in (
        (
            "rooms",
            "--add-tool",
            {"taskset.py": {REWARD: ROOMS_REWARD}, "servers/tool.py": {TOOL: LOOK, PREFIX: NO_PREFIX}},
        ),
        (
            "agents",
            "--add-harness",
            {
                "taskset.py": {REWARD: AGENTS_REWARD, DATA: '    mode: str = ""\n'},
                "harness.py": {LAUNCH: AGENT, NEEDS: LOCAL},
            },
        ),
    ):
        _run([home / "bin" / "vf-init", name, "--path", folder, option])
        for file, replaced in changes.items():
            _fill_in(folder / name / name / file, replaced)
        _run([*_pip(python), "--no-deps", "--reinstall", folder / name])
    return python


def _fill_in(file: Path, replaced: dict[str, str]) -> None:
    text = file.read_text()
    for template, own in replaced.items():
        assert template in text, f"{file.name} is not as {RELEASE} writes it"
        text = text.replace(template, own)
    before, load, _ = text.partition("        raise NotImplementedError(\n            \"Return this taskset's tasks")
    if load:
        kind = file.parent.name.capitalize()
        text = f'{before}        row = {kind}Data(prompt="what is in the room?")\n'
        text += f"        return [{kind}Task(row, self.config.task) for _ in range(self.config.num_tasks)]\n"
    file.write_text(text)


def _pip(python: Path) -> list[str | Path]:
    return [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", python]


def _run(command: list[str | Path]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    if done.returncode != 0:
        pytest.skip(f"{RELEASE} cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
