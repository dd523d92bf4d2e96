"""Files, programs, packages and tokens that `tasks.environments` names, looked for before a run begins.

None of them is run, except interpreters of verifiers and of OpenEnv's sessions: they alone find their packages.
"""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rollcast.config.environments.harness import HarnessEnvironment
from rollcast.config.environments.openenv import OpenEnvironment
from rollcast.config.environments.openenv_sessions import OpenEnvSessionEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.config.errors import UserError
from rollcast.config.own_functions import check_file, is_function
from rollcast.config.tasks import Tasks
from rollcast.connections.bearer import NoTokenError, bearer_headers
from rollcast.environments.openenv_sessions import looking as openenv_sessions
from rollcast.environments.verifiers import looking as verifiers


def check_environment_files(tasks: Tasks) -> None:
    """Raises UserError: a sentence for each that is not there."""
    sentences = [sentence for number in range(len(tasks.environments)) for sentence in _missing(tasks, number)]
    if sentences:
        raise UserError("\n".join(sentences))


def _missing(tasks: Tasks, number: int) -> Iterator[str]:
    environment = tasks.environments[number]
    field = f"tasks.environments.{number}"
    if isinstance(environment, ToolSet):
        yield from _missing_of_tools(field, environment)
    elif isinstance(environment, HarnessEnvironment) and environment.command is not None:
        yield from _missing_program(f"{field}.command.0", environment.command[0])
    elif isinstance(environment, VerifiersEnvironment):
        if (problem := verifiers.why_missing(environment)) is not None:
            yield f"{field}.interpreter = {environment.interpreter}: {problem}"
    elif isinstance(environment, OpenEnvSessionEnvironment):
        yield from _missing_function(f"{field}.factory", environment.factory)
        if (problem := openenv_sessions.why_missing(environment)) is not None:
            yield f"{field}.interpreter = {environment.interpreter}: {problem}"
    elif isinstance(environment, OpenEnvironment) and shutil.which(environment.interpreter) is None:
        yield (
            f"{field}.interpreter = {environment.interpreter}: is no program; give the python of the virtual "
            "environment in which openenv is installed"
        )


def _missing_of_tools(field: str, tools: ToolSet) -> Iterator[str]:
    for index, source in enumerate(tools.tools):
        if is_function(source):
            yield from _missing_function(f"{field}.tools.{index}", source)
    if "search" in tools.tools:
        yield from _missing_package(f"{field}.tools", "the tool search", "bm25s")
    if tools.corpus is not None and not _is_readable(tools.corpus):
        yield f"{field}.corpus = {tools.corpus}: cannot be read; give a JSONL file with a field `text` in each line"
    if tools.mcp:
        yield from _missing_package(f"{field}.mcp", "an MCP server", "mcp")
    for index, server in enumerate(tools.mcp):
        if server.command is not None:
            yield from _missing_program(f"{field}.mcp.{index}.command", server.command[0])
        try:
            bearer_headers(server.token_variable)
        except NoTokenError as error:
            yield f"{field}.mcp.{index}.token_variable: {error}; export it where the run is started"


def _missing_function(field: str, source: str) -> Iterator[str]:
    try:
        check_file(source, field)
    except UserError as error:
        yield str(error)


def _missing_program(field: str, program: str) -> Iterator[str]:
    if shutil.which(program) is None:
        yield f"{field} = {program}: there is no such program; give its path, or install it"


def _missing_package(field: str, user: str, package: str) -> Iterator[str]:
    if find_spec(package) is None:
        yield f"{field}: {user} needs the package {package}, which is not installed; pip install 'rollcast[tools]'"


def _is_readable(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return bool(stream.read(1))
    except OSError:
        return False
