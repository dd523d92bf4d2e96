"""A running container and the engine that starts it, whichever the run file names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

COMMAND_SECONDS = 60.0
"""Deadline of one order to an engine that runs nothing of the container, on a busy machine."""
END_ALL = "kill -9 -1"
"""Command of a container's shell: it ends every process except the first one and that shell."""
MAKE_ROOM = 'rm -rf -- "$1" && mkdir -p -- "$2"'
CAPABILITIES = (
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID",
)  # fmt: skip
"""Rights of root that package managers need. Others, such as to raw sockets and devices, are given
up."""


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

    async def has_ended(self) -> bool:
        """Whether it is known to run no more."""
        ...

    async def open_commands(self, *, user: str | None, folder: str | None) -> list[str]:
        """The command of this machine that runs another one, which follows it, in the container:
        without input, with a bounded output, until the container ends.

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

        user, folder: None = the image's.
        """
        ...

    async def put(self, folder: Path, target: str) -> None:
        """Copy a folder of this machine to a folder of the container; a former one is removed."""
        ...

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        """The content of a file. None = no such file. A longer one, or a folder, is refused."""
        ...

    async def copy_to(self, other: Self, path: str) -> None:
        """Copy a file or folder to the same place of another container of this engine. Nothing is
        copied if it is not there.
        """
        ...

    async def end_programs(self) -> None:
        """End every process except the first one; `open_commands` starts no further one."""
        ...

    async def end(self) -> None:
        """End it and everything in it. May be called again; never fails."""
        ...


class ContainerEngine(Protocol):
    """Starts containers with the same settings.

    The checks yield sentences, and wait for the engine.
    """

    async def start(
        self, image: str, start_seconds: float, variables: Mapping[str, str] = {}
    ) -> Container:
        """A new container. variables: of every process in it. Raises ContainerError."""
        ...

    async def close(self) -> None:
        """Give up what the engine holds. Its containers are ended before."""
        ...

    def remove_abandoned(self) -> int:
        """Remove the containers of this machine's processes that were killed; returns their number.
        Never raises.
        """
        ...

    def missing(self, field: str) -> Iterator[str]:
        """Sentences on what keeps this machine from starting containers with the settings."""
        ...

    def missing_images(
        self, images: Mapping[str, str], field: str, command: str = ":"
    ) -> Iterator[str]:
        """Images that cannot be had, or whose containers do not start.

        images: each with the setting or row that names it. command: of a shell, which must succeed
        in a container.
        """
        ...
