"""The methods that a class of the user's own, or a set of functions, offers: TRL's convention
`environment_factory`.

    reset(**row)    begins an episode; returns None, text for the last message of the user, or a
                    list of messages
    public methods  are tools; type hints and docstring give the JSON schema
    get_reward()    the reward of the episode; a class without it leaves the reward to a verifier
    get_call_reward()    ours, optional: what the last call was worth by itself
    get_metrics()    ours, optional: numbers of the episode by name, for plots and loggers

All of them may be async. https://huggingface.co/docs/trl/openenv
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rollcast.config.errors import UserError
from rollcast.config.function_loading import is_function, load_function
from rollcast.environments.base import ToolSchema
from rollcast.environments.python_processes.instance import Function, Instance
from rollcast.environments.python_processes.source import PythonSource
from rollcast.environments.tools.functions import program_tools, tool_functions

ENVIRONMENTS_GROUP = "rollcast.environments"
"""Group of the entry points by which installed packages name environments."""
RESET = "reset"
REWARD = "get_reward"
CALL_REWARD = "get_call_reward"
METRICS = "get_metrics"


@dataclass(frozen=True, slots=True)
class Definition:
    """One environment's code, imported."""

    make: Callable[[], Instance]
    schemas: tuple[ToolSchema, ...]
    module: str | None
    """The module that holds the code; None = shipped with Rollcast."""
    programs: tuple[str, ...] = ()
    """Tools that run what the model wrote: a process of their own does that."""
    is_shipped: bool = False
    """Whether nothing of a user's is in memory: neither code nor a corpus."""
    gives_call_rewards: bool = False
    gives_metrics: bool = False


def load_definition(source: PythonSource) -> Definition:
    """Import the code. Raises UserError, and whatever the import raises."""
    if source.code is not None:
        return _load_class_definition(source.name, source.code)
    functions = tool_functions(source)
    custom_modules = [
        functions[name.rpartition(":")[2]].__module__ for name in source.tools if is_function(name)
    ]
    schemas = tuple(
        make_tool_schema(function, name, source.name) for name, function in functions.items()
    )
    is_shipped = not custom_modules and source.corpus is None
    instance = Instance(functions)
    return Definition(
        lambda: instance,
        schemas,
        custom_modules[0] if custom_modules else None,
        program_tools(source.tools),
        is_shipped,
    )


def _load_class_definition(environment: str, code: str) -> Definition:
    environment_class = load_function(code, ENVIRONMENTS_GROUP)
    if not isinstance(environment_class, type):
        raise UserError(
            f"environment {environment}: {code} is not a class; name a class with reset and methods"
        )
    names = list(_tool_names(environment_class))
    if not names and not hasattr(environment_class, RESET):
        raise UserError(
            f"environment {environment}: {code} has neither reset nor a public method; add one"
        )
    schemas = tuple(
        make_tool_schema(getattr(environment_class, name), name, environment) for name in names
    )

    gives_call_rewards = hasattr(environment_class, CALL_REWARD)
    gives_metrics = hasattr(environment_class, METRICS)

    def make() -> Instance:
        user_instance = environment_class()
        tools = {name: getattr(user_instance, name) for name in names}
        return Instance(
            tools,
            getattr(user_instance, RESET, None),
            getattr(user_instance, REWARD, None),
            getattr(user_instance, CALL_REWARD, None) if gives_call_rewards else None,
            getattr(user_instance, METRICS, None) if gives_metrics else None,
        )

    return Definition(
        make,
        schemas,
        environment_class.__module__,
        gives_call_rewards=gives_call_rewards,
        gives_metrics=gives_metrics,
    )


def _tool_names(environment_class: type) -> Iterator[str]:
    for name, _ in inspect.getmembers(environment_class, callable):
        if not name.startswith("_") and name not in (RESET, REWARD, CALL_REWARD, METRICS):
            yield name


def make_tool_schema(function: Function, name: str, environment: str) -> ToolSchema:
    """The JSON schema of a tool. Raises UserError if type hints or docstring do not give one."""
    from transformers.utils import chat_template_utils

    # It would import torch to recognise a tensor. A tool that takes one has imported torch already.
    chat_template_utils.is_torch_available = lambda: "torch" in sys.modules
    try:
        schema: dict[str, Any] = chat_template_utils.get_json_schema(function)
    except Exception as error:  # its own kinds of errors, and what odd annotations raise
        error_message = " ".join(str(error).split())
        raise UserError(
            f"environment {environment}: the tool {name} cannot be described to a model "
            f"({error_message}); give each "
            "parameter a type and a line under `Args:` in the docstring"
        ) from error
    schema["function"]["name"] = name
    return schema
