"""The clients: how each is installed, what starts it, and the tool that the model calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

ANSWER = "The work is done."


@dataclass(frozen=True)
class Client:
    """One row of the table in docs/episodes.md."""

    name: str
    packages: tuple[str, ...]
    """With their versions."""
    dialect: Literal["chat", "responses", "messages"]
    tool: str
    """The tool that the model calls. A client without a tool of this name says so to the model,
    which is a turn too."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    program: str = ""
    """File in programs/. Empty = the command itself."""
    command: tuple[str, ...] = ()
    from_npm: bool = False
    max_length: int = 8_192
    variables: Mapping[str, str] = field(default_factory=dict)


OPENAI_AGENTS = ("openai-agents==0.24.0",)
CITY = {"city": "Rome"}
CLIENTS = (
    Client("openai-agents, chat", OPENAI_AGENTS, "chat", "get_weather", CITY, "openai_agents.py"),
    Client(
        "openai-agents, Responses",
        OPENAI_AGENTS,
        "responses",
        "get_weather",
        CITY,
        "openai_agents.py",
        variables={"AGENTS_API": "responses"},
    ),
    Client(
        "openai-agents, one call at a time",
        OPENAI_AGENTS,
        "responses",
        "get_weather",
        CITY,
        "openai_agents.py",
        variables={"AGENTS_API": "responses", "ONE_CALL": "1"},
    ),
    Client("pydantic-ai, text", ("pydantic-ai-slim[openai]",), "chat", "get_weather", CITY,
        "pydantic_agent.py"),
    Client(
        "pydantic-ai, output type",
        ("pydantic-ai-slim[openai]",),
        "chat",
        "final_result",
        {"city": "Rome", "degrees": 20},
        "pydantic_agent.py",
        variables={"OUTPUT_TYPE": "1"},
    ),
    Client("smolagents, tools", ("smolagents[openai]",), "chat", "get_weather", CITY,
        "smol_tools.py"),
    Client("langchain, agent", ("langchain", "langchain-openai"), "chat", "get_weather", CITY,
        "langchain_agent.py"),
    Client("langgraph", ("langgraph", "langchain-openai"), "chat", "get_weather", CITY,
        "langgraph_agent.py"),
    Client("litellm", ("litellm",), "chat", "get_weather", CITY, "litellm_agent.py"),
    Client("anthropic", ("anthropic",), "messages", "get_weather", CITY, "anthropic_agent.py"),
    Client(
        "codex",
        ("@openai/codex",),
        "responses",
        "shell",
        {"command": ["ls"]},
        command=(
            "{bin}/codex", "exec", "--skip-git-repo-check", "-c", "model_provider=rollcast",
            "-c", "model_providers.rollcast.name=rollcast", "-c",
            "model_providers.rollcast.base_url={base_url}",
            "-c", "model_providers.rollcast.wire_api=responses",
            "-c", "model_providers.rollcast.env_key=OPENAI_API_KEY",
            "-m", "{model}", "List the files here.",
        ),
        from_npm=True,
        max_length=32_768,
    ),
    Client(
        "claude-code",
        ("@anthropic-ai/claude-code",),
        "messages",
        "Bash",
        {"command": "ls", "description": "List the files"},
        command=("{bin}/claude", "-p", "List the files here.", "--allowedTools", "Bash"),
        from_npm=True,
        max_length=65_536,
    ),
    Client(
        "opencode",
        ("opencode-ai",),
        "chat",
        "bash",
        {"command": "ls", "description": "List the files"},
        program="opencode.py",
        from_npm=True,
        max_length=32_768,
    ),
)  # fmt: skip
