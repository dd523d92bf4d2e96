"""The clients: how each is installed, what starts it, and the tool that the model calls."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

ANSWER = "The work is done."
PINS = Path(__file__).parents[2] / "requirements" / "clients.yaml"
CODE_ANSWER = """Thought: I look at the weather.
<code>
import random
print(get_weather("Rome"))
if random.random() < 0.3:
    final_answer("sunny")
</code>"""
"""A step of smolagents' CodeAgent, whose stop text is its last line."""


@dataclass(frozen=True)
class Client:
    """One row of the table in docs/episodes.md."""

    name: str
    package: str
    """Its list in requirements/clients.yaml."""
    dialect: Literal["chat", "responses", "messages"]
    tool: str
    """The tool that the model calls. A client without a tool of this name says so to the model,
    which is a turn too."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    """File in programs/. Empty = the command itself."""
    command: tuple[str, ...] = ()
    max_length: int = 8_192
    variables: Mapping[str, str] = field(default_factory=dict)
    answer: str = ANSWER
    call_share: float = 2 / 3
    """Share of the model's turns that call the tool."""
    rewrites_history: bool = False
    """Whether it sends its own turns back as another text, so that every turn is a sequence."""
    stays_here: bool = False
    """Whether a connection to another host is a failure."""

    @property
    def file_name(self) -> str:
        """Its name in letters that any file system takes."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower())

    @property
    def packages(self) -> tuple[str, ...]:
        """With their versions."""
        (pins,) = _pins()[self.package].values()
        return tuple(pins)

    @property
    def from_npm(self) -> bool:
        return "npm" in _pins()[self.package]


@functools.cache
def _pins() -> dict[str, dict[str, list[str]]]:
    pins: dict[str, dict[str, list[str]]] = yaml.safe_load(PINS.read_text())
    return pins


CITY = {"city": "Rome"}
RESPONSES = {"AGENTS_API": "responses"}
CLIENTS = (
    Client("openai-agents, chat", "openai-agents", "chat", "get_weather", CITY,
        "openai_agents.py"),
    Client("openai-agents, Responses", "openai-agents", "responses", "get_weather", CITY,
        "openai_agents.py", variables=RESPONSES),
    Client("openai-agents, one call at a time", "openai-agents", "responses", "get_weather", CITY,
        "openai_agents.py", variables=RESPONSES | {"ONE_CALL": "1"}),
    Client("pydantic-ai, text", "pydantic-ai", "chat", "get_weather", CITY, "pydantic_agent.py"),
    Client("pydantic-ai, output type", "pydantic-ai", "chat", "final_result",
        {"city": "Rome", "degrees": 20}, "pydantic_agent.py", variables={"OUTPUT_TYPE": "1"}),
    Client("smolagents, tools", "smolagents", "chat", "get_weather", CITY, "smol_agent.py",
        # A call comes back as text: "Calling tools: [...]".
        rewrites_history=True),
    Client("smolagents, code", "smolagents", "chat", "none", {}, "smol_agent.py",
        variables={"CODE": "1"}, answer=CODE_ANSWER, call_share=0.0),
    Client("langchain, agent", "langchain", "chat", "get_weather", CITY, "langchain_agent.py"),
    Client("langchain, structured output", "langchain", "chat", "Weather",
        {"city": "Rome", "degrees": 20}, "langchain_structured.py", call_share=1.0,
        answer='{"city": "Rome", "degrees": 20}'),
    Client("langgraph", "langgraph", "chat", "get_weather", CITY, "langgraph_agent.py"),
    Client("litellm", "litellm", "chat", "get_weather", CITY, "litellm_agent.py"),
    Client("anthropic", "anthropic", "messages", "get_weather", CITY, "anthropic_agent.py"),
    Client("mini-swe-agent", "mini-swe-agent", "chat", "bash",
        {"command": "[ $((RANDOM % 3)) = 0 ] && echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"},
        "mini_swe_agent.py"),
    Client("google-adk", "google-adk", "chat", "get_weather", CITY, "google_adk.py"),
    Client("codex", "codex", "responses", "exec_command", {"cmd": "ls"},
        command=(
            "{bin}/codex", "exec", "--skip-git-repo-check", "-c", "model_provider=rollcast",
            "-c", "model_providers.rollcast.name=rollcast", "-c",
            "model_providers.rollcast.base_url={base_url}",
            "-c", "model_providers.rollcast.wire_api=responses",
            "-c", "model_providers.rollcast.env_key=OPENAI_API_KEY",
            # It asks OpenAI and GitHub for experiments, updates and plugins otherwise.
            "-c", "analytics.enabled=false", "-c", "check_for_update_on_startup=false",
            "-c", "features.plugins=false", "-c", "features.apps=false",
            "-m", "{model}", "List the files here.",
        ),
        max_length=32_768, stays_here=True),
    Client("claude-code", "claude-code", "messages", "Bash",
        {"command": "ls", "description": "List the files"},
        command=("{bin}/claude", "-p", "List the files here.", "--allowedTools", "Bash"),
        max_length=65_536, stays_here=True,
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}),
    Client("opencode", "opencode", "chat", "bash",
        {"command": "ls", "description": "List the files"}, "opencode.py", max_length=32_768),
    Client("qwen-code", "qwen-code", "chat", "run_shell_command",
        {"command": "ls", "is_background": False},
        command=(
            # Without --safe-mode an agent in the background also extracts memories of the chat.
            "{bin}/qwen", "--auth-type", "openai", "--model", "{model}", "--yolo", "--safe-mode",
            "List the files here.",
        ),
        max_length=65_536),
)  # fmt: skip
SETTINGS_BY_PACKAGE = {
    "openai-agents": 'nothing; chat: `set_default_openai_api("chat_completions")`',
    "pydantic-ai": "`OpenAIChatModel(MODEL)`",
    "smolagents": "`OpenAIServerModel(MODEL, api_base=URL, api_key=KEY)`",
    "langchain": "`ChatOpenAI(model=MODEL)`",
    "langgraph": "`ChatOpenAI(model=MODEL)`",
    "litellm": '`completion("openai/MODEL", api_base=URL)`',
    "anthropic": "nothing",
    "mini-swe-agent": '`LitellmModel("openai/MODEL", model_kwargs={"api_base": URL})`',
    "google-adk": '`LiteLlm("openai/MODEL")`',
    "codex": "`config.toml`, as above",
    "claude-code": "`CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1`; Node.js 22",
    "opencode": "`opencode.json`: a provider of `@ai-sdk/openai-compatible`",
    "qwen-code": "`--auth-type openai --model MODEL --safe-mode`; Node.js 22",
}
"""What a user sets besides the session's variables, by the list of packages: a column of the table
in docs/episodes.md."""
