"""What a class of the user's own, or a set of functions, offers: TRL's convention for `environment_factory`.

    reset(**row)    begins an episode; returns None, text for the last message of the user, or a list of messages
    public methods  are tools; type hints and docstring give the JSON schema
    get_reward()    the reward of the episode; a class without it leaves the reward to a verifier
    get_call_reward()    ours, optional: what the last call was worth by itself

All of them may be async. https://huggingface.co/docs/trl/openenv
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.errors import UserError
from rollcast.config.own_functions import load_function
from rollcast.environments.base import ToolSchema
from rollcast.environments.tools.functions import tool_functions

ENVIRONMENTS_GROUP = "rollcast.environments"
"""Group of the entry points by which installed packages name environments."""
RESET = "reset"
REWARD = "get_reward"
CALL_REWARD = "get_call_reward"
Function = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Definition:
    """One environment's code, imported."""

    make: Callable[[], "Instance"]
    schemas: tuple[ToolSchema, ...]
    module: str | None
    """The module that holds the code; None = shipped with Rollcast."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One environment that serves an episode."""

    tools: Mapping[str, Function]
    reset: Function | None = None
    reward: Function | None = None
    call_reward: Function | None = None


def load_definition(settings: EnvironmentSettings) -> Definition:
    """Import the code. Raises UserError, and whatever the import raises."""
    if isinstance(settings, ClassEnvironment):
        return _of_class(settings)
    assert isinstance(settings, ToolSet), settings.name
    functions = tool_functions(settings)
    own = [function.__module__ for function in functions.values() if not function.__module__.startswith("rollcast.")]
    schemas = tuple(schema_of(function, name, settings.name) for name, function in functions.items())
    return Definition(lambda: Instance(functions), schemas, own[0] if own else None)


def _of_class(settings: ClassEnvironment) -> Definition:
    made = load_function(settings.code, ENVIRONMENTS_GROUP)
    if not isinstance(made, type):
        raise UserError(
            f"environment {settings.name}: {settings.code} is no class; name a class with reset and methods"
        )
    names = list(_tool_names(made))
    if not names and not hasattr(made, RESET):
        raise UserError(f"environment {settings.name}: {settings.code} has neither reset nor a public method; add one")
    schemas = tuple(schema_of(getattr(made, name), name, settings.name) for name in names)

    def make() -> Instance:
        one = made()
        tools = {name: getattr(one, name) for name in names}
        return Instance(tools, *(getattr(one, name, None) for name in (RESET, REWARD, CALL_REWARD)))

    return Definition(make, schemas, made.__module__)


def _tool_names(made: type) -> Iterator[str]:
    for name, _ in inspect.getmembers(made, callable):
        if not name.startswith("_") and name not in (RESET, REWARD, CALL_REWARD):
            yield name


def schema_of(function: Function, name: str, environment: str) -> ToolSchema:
    """The JSON schema of a tool. Raises UserError if type hints or docstring do not give one."""
    from transformers.utils import get_json_schema

    try:
        schema: dict[str, Any] = get_json_schema(function)
    except Exception as error:  # its own kinds of errors, and what odd annotations raise
        said = " ".join(str(error).split())
        raise UserError(
            f"environment {environment}: the tool {name} cannot be described to a model ({said}); give each "
            "parameter a type and a line under `Args:` in the docstring"
        ) from error
    schema["function"]["name"] = name
    return schema
