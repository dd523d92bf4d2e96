"""The functions of a set of tools, as the environment's process calls them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from rollcast.config.errors import UserError
from rollcast.config.function_loading import is_function, load_function
from rollcast.environments.tools.calculator import calculator
from rollcast.environments.tools.python_code import python
from rollcast.environments.tools.search import search_over
from rollcast.environments.tools.shell import shell_within

Tool = Callable[..., Any]
PROGRAM_TOOLS = ("python", "shell")
"""Shipped tools that run what the model wrote, which may end or spoil the process it runs in: by an
exit, an endless loop in C, all of its memory, too many processes."""


class NamedTools(Protocol):
    """The settings of a set of tools that its functions depend on."""

    @property
    def name(self) -> str: ...
    @property
    def tools(self) -> tuple[str, ...]: ...
    @property
    def corpus(self) -> Path | None: ...
    @property
    def call_seconds(self) -> float: ...


def program_tools(tools: Iterable[str]) -> tuple[str, ...]:
    """Those that PROGRAM_TOOLS names."""
    return tuple(name for name in tools if name in PROGRAM_TOOLS)


def tool_functions(settings: NamedTools) -> dict[str, Tool]:
    """The functions by the name under which the model calls them. Call it in their process, before
    it is locked down: modules are imported here, and the corpus is read.

    Raises UserError, and whatever the import of a function of the user's own raises.
    """
    functions: dict[str, Tool] = {}
    for source in settings.tools:
        function = (
            load_function(source) if is_function(source) else _make_shipped_tool(source, settings)
        )
        name = source.rpartition(":")[2]
        if name in functions:
            raise UserError(
                f"environment {settings.name}: two tools are called {name}; rename one of the "
                "functions"
            )
        functions[name] = function
    return functions


def _make_shipped_tool(name: str, settings: NamedTools) -> Tool:
    match name:
        case "python":
            return python
        case "calculator":
            return calculator
        case "shell":
            return shell_within(settings.call_seconds)
        case _:
            assert name == "search", name
            assert settings.corpus is not None, "a rule of the run file asks for it"
            return search_over(settings.corpus)
