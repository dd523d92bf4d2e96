"""The functions of a set of tools, as the environment's process calls them."""

from collections.abc import Callable
from typing import Any

from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.errors import UserError
from rollcast.config.own_functions import is_function, load_function
from rollcast.environments.tools.calculator import calculator
from rollcast.environments.tools.python_code import python
from rollcast.environments.tools.search import search_over
from rollcast.environments.tools.shell import shell_within

Tool = Callable[..., Any]


def tool_functions(settings: ToolSet) -> dict[str, Tool]:
    """The functions by the name under which the model calls them. Call it in their process, before it is locked down:
    modules are imported here, and the corpus is read.

    Raises UserError, and whatever the import of a function of the user's own raises.
    """
    functions: dict[str, Tool] = {}
    for source in settings.tools:
        function = load_function(source) if is_function(source) else _shipped(source, settings)
        name = source.rpartition(":")[2]
        if name in functions:
            raise UserError(f"environment {settings.name}: two tools are called {name}; rename one of the functions")
        functions[name] = function
    return functions


def _shipped(name: str, settings: ToolSet) -> Tool:
    match name:
        case "python":
            return python
        case "calculator":
            return calculator
        case "shell":
            return shell_within(settings.call_seconds)
        case "search":
            assert settings.corpus is not None, "a rule of the run file asks for it"
            return search_over(settings.corpus)
    raise AssertionError(f"no tool is called {name}, and a rule of the run file refuses such a name")
