"""Tasksets as `vf-init` of verifiers writes them, completed as their author would, in a virtual
environment.
"""

from __future__ import annotations

from pathlib import Path

from testkit.other_environments import install, other_environment, run_step

REWARD = (
    '        raise NotImplementedError("Score the rollout and return a float (e.g. in [0, 1]).")\n'
)
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
"""  # noqa: E501
AGENTS_REWARD = """        if self.data.mode == "no reward":
            raise ValueError("nothing to compare with")
        return len(trace.assistant_messages) / 4
"""
LOAD = "    def load(self)"
ENDLESS = f"    INFINITE = True\n\n{LOAD}"
LAUNCH = """        raise NotImplementedError(
            "Implement launch: run your agent in `runtime`, pointing its model calls at "
            "`endpoint` with bearer token `secret`."
        )
"""
NEEDS = "    APPENDS_SYSTEM_PROMPT = True\n"
LOCAL = f"{NEEDS}    NEEDS_CONTAINER = False\n"
AGENT = """        import asyncio
        import os
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
        elif data.mode == "exits":
            raise SystemExit("the game is over")
        elif data.mode == "task exits":
            async def end():
                raise SystemExit("the game is over")

            await asyncio.gather(end())
        elif data.mode == "crash":
            os._exit(3)
        elif data.mode == "hang":
            time.sleep(600)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
"""  # noqa: E501


def installed_tasksets() -> Path:
    """The Python of an environment with verifiers and both tasksets.

    Skips if they cannot be installed.
    """
    return other_environment("verifiers", _add_tasksets, Path(__file__).read_text())


def _add_tasksets(home: Path) -> None:
    for name, option, changes in (
        (
            "rooms",
            "--add-tool",
            {
                "taskset.py": {REWARD: ROOMS_REWARD},
                "servers/tool.py": {TOOL: LOOK, PREFIX: NO_PREFIX},
            },
        ),
        (
            "agents",
            "--add-harness",
            {
                "taskset.py": {REWARD: AGENTS_REWARD, DATA: '    mode: str = ""\n'},
                "harness.py": {LAUNCH: AGENT, NEEDS: LOCAL},
            },
        ),
        ("endless", "--add-tool", {"taskset.py": {REWARD: ROOMS_REWARD, LOAD: ENDLESS}}),
    ):
        folder = home / "tasksets"
        run_step([home / "bin" / "vf-init", name, "--path", folder, option])
        for file, replaced in changes.items():
            _fill_in(folder / name / name / file, replaced)
        install(home, "--no-deps", folder / name)


def _fill_in(file: Path, replaced: dict[str, str]) -> None:
    text = file.read_text()
    for template, replacement in replaced.items():
        assert template in text, f"{file.name} is not as vf-init writes it"
        text = text.replace(template, replacement)
    preceding_text, load, _ = text.partition(
        "        raise NotImplementedError(\n            \"Return this taskset's tasks"
    )
    if load:
        kind = file.parent.name.capitalize()
        text = f'{preceding_text}        row = {kind}Data(prompt="what is in the room?")\n'
        count = "iter(int, 1)" if ENDLESS in text else "range(self.config.num_tasks)"
        text += f"        return ({kind}Task(row, self.config.task) for _ in {count})\n"
    file.write_text(text)
