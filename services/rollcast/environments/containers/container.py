"""A running container, whoever started it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class ContainerError(Exception):
    """A container cannot be started, or is gone. The message is one sentence with the cause."""


class SpoiledError(ContainerError):
    """Programs in the container made it unusable: no failure of the machine."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Output and exit code of a command."""

    content: bytes
    """Standard output and standard error as they came, or their beginning."""
    code: int
    """Exit code as a shell reports it: above 128 a signal."""
    num_dropped: int = 0
    """Further bytes, which were read and not kept."""
    is_overdue: bool = False
    """Whether it was ended at its deadline."""

    @property
    def text(self) -> str:
        """The output for a reader, with a note about dropped bytes."""
        text = self.content.decode("utf-8", "replace").rstrip("\n")
        if not self.num_dropped:
            return text
        return f"{text}\n[{self.num_dropped} further bytes were not kept]"


class Container(Protocol):
    """One container.

    Every method raises ContainerError when it is gone, SpoiledError if its programs are to blame.
    """

    @property
    def name(self) -> str: ...

    def command_in(
        self,
        command: Sequence[str],
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> list[str]:
        """The command of this machine that runs another one in the container.

        user, folder: None = the image's.
        """
        ...

    async def run(
        self,
        command: Sequence[str],
        seconds: float,
        *,
        variables: Mapping[str, str] = {},
        user: str | None = None,
        folder: str | None = None,
    ) -> CommandOutput:
        """Run a command to its end, or to its deadline: then every process in the container is
        ended, except the first one.
        """
        ...

    async def put(self, folder: Path, target: str) -> None:
        """Copy a folder of this machine to a folder of the container; a former one is removed."""
        ...

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        """The content of a file. None = no such file. A longer one, or a folder, is refused."""
        ...

    async def end_programs(self) -> None:
        """End every process except the first one."""
        ...

    async def end(self) -> None:
        """End it and everything in it. May be called again; never fails."""
        ...
