"""One harness while it runs: its process, the end of its output, and its folder.

start -> keeper -> command -> ...       `end`, or the end of the command: no process of it is left
"""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rollcast.environments.base import EnvironmentFailedError
from rollcast.environments.harness.folder import make_folder
from rollcast.environments.last_lines import LastLines

SECRET_PREFIXES = (
    "ROLLCAST_",
    "OPENAI_",
    "ANTHROPIC_",
    "HF_TOKEN",
    "HUGGING_FACE_HUB_TOKEN",
    "REDIS",
)
"""Variables of the generator that a harness does not see."""


class HarnessProgram:
    """A started harness."""

    is_ended_by_another = False
    """Each has processes of its own."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        folder: Path,
        lock: int,
        clean_up: Callable[[], object],
    ) -> None:
        """lock: a descriptor to close once the folder is removed. clean_up: called in a thread
        after it was killed.
        """
        self._process = process
        self._clean_up = clean_up
        self._folder = folder
        self._lock: int | None = lock
        self._lines = LastLines()
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        variables: Mapping[str, str],
        stdin: int = asyncio.subprocess.DEVNULL,
        *,
        has_own_home: bool = False,
        clean_up: Callable[[], object] = lambda: None,
    ) -> "HarnessProgram":
        """Start it in a new folder, with the user's variables and these. Raises
        EnvironmentFailedError.

        stdin: a descriptor for its standard input. has_own_home: HOME is an empty folder, because
        an agent keeps history and settings there, and none of them may reach another episode.
        clean_up: removes what a killed program leaves outside its folder and its processes.
        """
        folder, lock = await asyncio.to_thread(make_folder)
        try:
            home = {}
            if has_own_home:
                home = {"HOME": str(folder / ".home")}
                (folder / ".home").mkdir()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    "-P",
                    "-m",
                    "rollcast.environments.harness.keeper",
                    str(os.getpid()),
                    str(folder),
                ),
                *absolute(command),
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=folder,
                # Some programs, opencode for one, look for their folder in PWD.
                env={
                    **inherited_variables(),
                    "PWD": str(folder),
                    "TMPDIR": str(folder),
                    **home,
                    **variables,
                },
                start_new_session=True,
            )
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)  # it is empty
            os.close(lock)
            if isinstance(error, OSError):
                raise EnvironmentFailedError(
                    f"{command[0]} cannot be started: {error.strerror}"
                ) from error
            raise
        return cls(process, folder, lock, clean_up)

    @property
    def has_ended(self) -> bool:
        """No process of it is left."""
        return self._watching.done()

    @property
    def exit_code(self) -> int | None:
        """The exit code as a shell reports it: 128 and more = a signal.

        None = the program has not ended.
        """
        return self._process.returncode if self.has_ended else None

    @property
    def how_it_failed(self) -> str:
        """Empty = it has not."""
        return f"ended with exit code {self.exit_code}" if self.exit_code else ""

    @property
    def last_lines(self) -> str:
        """The end of its output, in one line."""
        return self._lines.in_one_line()

    async def wait(self, seconds: float) -> bool:
        """Wait for its end; returns whether it has ended."""
        await asyncio.wait({self._watching}, timeout=max(seconds, 0.0))
        return self._watching.done()

    async def end(self) -> None:
        """Kill it and everything that it started, and remove its folder. May be called again."""
        if not self._watching.done():
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            # How long the keeper may take to kill all processes of a harness on a busy machine
            if not await self.wait(10.0):
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
                self._watching.cancel()
            await asyncio.to_thread(self._clean_up)
        elif not 0 <= (self.exit_code or 0) < 128:  # it was killed, or its keeper was
            await asyncio.to_thread(self._clean_up)
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def _watch(self) -> None:
        """Read its output, so that it never waits for a reader, and wait for its end."""
        assert self._process.stdout is not None
        # Bytes of one read of a pipe
        while chunk := await self._process.stdout.read(1 << 16):
            self._lines.add(chunk)
        self._lines.end()
        await self._process.wait()


def absolute(command: Sequence[str]) -> list[str]:
    """The command for another working folder: the program's path, and the files among its
    arguments.
    """
    program = shutil.which(command[0])
    program_path = command[0] if program is None else os.path.abspath(program)
    return [
        program_path,
        *(
            os.path.abspath(argument) if os.path.isfile(argument) else argument
            for argument in command[1:]
        ),
    ]


def inherited_variables() -> dict[str, str]:
    """The user's variables without the run's secrets; calls to this machine go through no proxy."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.upper().startswith(SECRET_PREFIXES)
    }
    for name in ("NO_PROXY", "no_proxy"):
        variables[name] = ",".join(filter(None, (variables.get(name), "127.0.0.1", "localhost")))
    return variables
