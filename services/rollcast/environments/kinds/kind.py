"""The module of a kind, as the generator and the check before a run use it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, cast

from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.environments import kinds
from rollcast.environments.base import LiveEnvironment
from rollcast.environments.traces import ProgramTrace, SampledRecord, TracedLoss


class LiveSource(Protocol):
    """Environments of one name, which answer the calls of the generator's own episodes."""

    async def acquire(self) -> LiveEnvironment:
        """An environment that is free, or a new one. Raises EnvironmentFailedError."""

    async def release(self, environment: Any, *, is_reusable: bool) -> None:
        """Take back what `acquire` gave."""

    async def close(self) -> None:
        """End all."""


class SessionProgram(Protocol):
    """A started program, which takes the turns of one episode."""

    @property
    def has_ended(self) -> bool: ...

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it. None = the program runs, or shares its process."""

    @property
    def is_ended_by_another(self) -> bool:
        """Whether it was ended with its process, because another episode did not end."""

    @property
    def last_lines(self) -> str:
        """The end of its output, in one line."""

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""

    async def end(self) -> None:
        """End it and everything that it started."""


class TracedProgram(SessionProgram, Protocol):
    """A program of a kind with `join`, which reports a trace at its end."""

    @property
    def unusable(self) -> str:
        """Why its trace cannot be trained; empty = it can."""

    def trace(self) -> ProgramTrace | None:
        """None = it has not ended, or has failed. Raises EnvironmentFailedError."""


class ProgramSource(Protocol):
    """Programs of one name."""

    async def start(
        self, row: str, described: Mapping[str, str], sampling: Mapping[str, float]
    ) -> SessionProgram:
        """Start the program of one episode. Raises EnvironmentFailedError.

        row: the task's row as JSON. described: the session (base_url, token, reward_url, model,
        session). sampling: the run's temperature, top_p and top_k.
        """

    async def close(self) -> None:
        """End what the programs share."""


Join = Callable[[SampledRecord, Any], TracedLoss]
"""Raises UnusableTraceError."""


@dataclass(frozen=True)
class Surroundings:
    """The part of a generator that a kind works with."""

    on_replaced: Callable[[], None] = lambda: None
    """A kind calls it for each fork server that hung and was ended."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every program that is started: they name who signed the certificate
    of the generator."""


class EnvironmentKind(Protocol):
    """The module of a kind."""

    def missing(self, settings: Any, field: str) -> Iterator[str]: ...

    def start(self, settings: Any, surroundings: Surroundings) -> Any: ...


def missing_in_rows(
    settings: EnvironmentSettings, field: str, rows: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """Sentences on what the rows of a run name and this machine lacks. A kind whose rows name such
    things has a function of this name too.
    """
    of_kind = getattr(find_kind(settings), "missing_in_rows", None)
    if of_kind is not None:
        yield from of_kind(settings, field, rows)


def find_join(settings: EnvironmentSettings) -> Join | None:
    """The function that joins a session's record with the trace of its program.

    None = programs of this kind report no trace.
    """
    join: Join | None = getattr(find_kind(settings), "join", None)
    return join


def find_kind(settings: EnvironmentSettings) -> EnvironmentKind:
    """The module that goes with these settings. Raises UserError if it is not there."""
    return cast(EnvironmentKind, import_module(find_module_name(settings)))


def find_module_name(settings: EnvironmentSettings) -> str:
    """The name of the module that goes with these settings, which is not imported.

    Raises UserError if it is not there.
    """
    module = type(settings).__module__.rpartition(".")[2]
    name = f"{kinds.__name__}.{module}"
    if find_spec(name) is None:
        raise UserError(
            f"tasks.environments: {settings.name} has settings of a kind without code; "
            f"write services/{name.replace('.', '/')}.py with `missing` and `start`"
        )
    return name
