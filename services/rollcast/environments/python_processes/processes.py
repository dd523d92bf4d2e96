"""The generator's side: one fork server for each environment, and a pool of environments that are
ready.

acquire -> an idle one, or a new one of its fork server (started when first needed)
release -> idle, for the next episode      the profile folder, an overdue call, a failure: ended

A fork server that does not answer is ended, and the next environment starts another.
"""

import asyncio
import os
import socket
from collections.abc import Callable

from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.python_processes.live import PythonEnvironment
from rollcast.environments.python_processes.private_folder import PrivateFolders
from rollcast.environments.python_processes.running_fork_server import RunningForkServer
from rollcast.environments.python_processes.source import PythonSource


class EnvironmentProcesses:
    """Processes of one environment of the run file."""

    def __init__(
        self, settings: ClassEnvironment | ToolSet, on_replaced: Callable[[], None] = lambda: None
    ) -> None:
        """on_replaced: called for each fork server that hung and was ended."""
        self._settings = settings
        self._on_replaced = on_replaced
        self._starting = asyncio.Lock()
        # Environments of one kind that serve episodes at the same time; another episode waits. Some
        # gigabytes at most.
        self._room = asyncio.Semaphore(512)
        # New processes that begin at the same time. More of them would only make each slower, until
        # none is in time.
        self._beginning = asyncio.Semaphore(2 * len(os.sched_getaffinity(0)))
        self._fork_server: RunningForkServer | None = None
        self._folders: PrivateFolders | None = None
        self._watch: asyncio.Task[None] | None = None
        self._sends: set[asyncio.Task[RunningForkServer]] = set()
        """Connections that are on their way to the fork server."""
        self._is_closing = False
        self._live: set[PythonEnvironment] = set()
        self._idle: list[PythonEnvironment] = []
        """The last one that was given back is the first to go: its memory is warm."""

    async def acquire(self) -> PythonEnvironment:
        """An idle environment, or a new one. Waits for room until it is cancelled: an episode's own
        deadline does that.

        Raises EnvironmentFailedError.
        """
        await self._room.acquire()
        try:
            return await self._idle_one() or await self._new_one()
        except BaseException:
            self._room.release()
            raise

    async def _idle_one(self) -> PythonEnvironment | None:
        """None = all are at work, or have died meanwhile."""
        while self._idle:
            environment = self._idle.pop()
            if not environment.is_gone:
                return environment
            await self._discard(environment)
        return None

    async def _new_one(self) -> PythonEnvironment:
        """A new process that takes requests. Raises EnvironmentFailedError."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._replace_hung_servers())
        async with self._beginning:
            environment, fork_server = await self._connect_environment()
            try:
                return await self._begin(environment)
            except EnvironmentFailedError:
                # Its fork server may have ended, and another connection starts another one.
                if self._is_closing or not await asyncio.to_thread(fork_server.ends_soon):
                    raise
            environment, _ = await self._connect_environment()
            return await self._begin(environment)

    async def _begin(self, environment: PythonEnvironment) -> PythonEnvironment:
        """Wait until it takes requests. Raises EnvironmentFailedError: it has been ended then."""
        try:
            await environment.begin()
        except BaseException:
            await self._discard(environment)
            raise
        return environment

    async def _discard(self, environment: PythonEnvironment) -> None:
        self._live.discard(environment)
        await environment.close()

    async def _connect_environment(self) -> tuple[PythonEnvironment, RunningForkServer]:
        generator_socket, environment_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        send = asyncio.create_task(self._send(environment_socket))
        self._sends.add(send)
        send.add_done_callback(self._finish_send)
        try:
            # Goes on if this is cancelled: until the thread is done, no other file may get the
            # descriptor's number.
            fork_server = await asyncio.shield(send)
        except BaseException:
            generator_socket.close()
            raise
        reader, writer = await asyncio.open_connection(sock=generator_socket)
        environment = PythonEnvironment(
            self._settings,
            reader,
            writer,
            gives_call_rewards=fork_server.gives_call_rewards,
            gives_metrics=fork_server.gives_metrics,
        )
        self._live.add(environment)
        return environment, fork_server

    async def _send(self, environment_socket: socket.socket) -> RunningForkServer:
        """Send the environment's end of a connection to the fork server.

        Raises EnvironmentFailedError.
        """
        with environment_socket:
            async with self._starting:
                # In a thread: a fork server that is busy would hold up everything else of the
                # generator.
                return await asyncio.to_thread(self._ask_for, environment_socket.fileno())

    def _finish_send(self, send: asyncio.Task[RunningForkServer]) -> None:
        self._sends.discard(send)
        if not send.cancelled():
            send.exception()  # a caller that was cancelled does not look at it

    def _ask_for(self, connection: int) -> RunningForkServer:
        """Send a connection to the fork server, which is started if necessary.

        Raises EnvironmentFailedError.
        """
        if self._is_closing:
            raise EnvironmentFailedError("the generator ends")
        if self._fork_server is None or self._fork_server.has_ended:
            self._start()
        fork_server = self._fork_server
        assert fork_server is not None
        try:
            fork_server.fork(connection)
        except EnvironmentFailedError:
            if not fork_server.was_killed:
                raise
            # It hung and was ended in the meantime: this starts another one.
            return self._ask_for(connection)
        return fork_server

    def _start(self) -> None:
        """Raises EnvironmentFailedError: the module cannot be imported, or the machine cannot
        contain it.
        """
        if self._fork_server is not None:
            self._fork_server.close()
        if self._folders is None and self._settings.profile == "folder":
            self._folders = PrivateFolders()
        folder = None if self._folders is None else self._folders.path
        self._fork_server = RunningForkServer(PythonSource.select(self._settings), folder)
        self._fork_server.wait_until_ready()

    async def _replace_hung_servers(self) -> None:
        while True:
            # How often a fork server is asked whether it still works
            await asyncio.sleep(2.0)
            fork_server = self._fork_server
            if fork_server is None or not fork_server.is_ready or fork_server.has_ended:
                continue
            # One that does not answer for this long hangs: between two answers it does not more
            # than fork
            if not await asyncio.to_thread(fork_server.answers, 10.0) and not self._is_closing:
                await asyncio.to_thread(fork_server.kill)
                self._on_replaced()

    async def release(self, environment: PythonEnvironment, *, is_reusable: bool) -> None:
        """Keep it for another episode, or end it."""
        self._room.release()
        if is_reusable and self._may_be_reused and not environment.is_gone:
            self._idle.append(environment)
        else:
            await self._discard(environment)

    async def replace(self, environment: LiveEnvironment) -> PythonEnvironment:
        """End an environment that serves an episode; a new one takes its place.

        Raises EnvironmentFailedError.
        """
        assert isinstance(environment, PythonEnvironment)
        await self._discard(environment)
        return await self._new_one()

    @property
    def _may_be_reused(self) -> bool:
        """A private folder lives as long as its episode, and so does a process that ran code of the
        model.
        """
        runs_code = isinstance(self._settings, ToolSet) and "python" in self._settings.tools
        return self._settings.profile != "folder" and not runs_code

    async def close(self) -> None:
        """End every process."""
        self._is_closing = True
        if self._fork_server is not None:
            self._fork_server.hang_up()  # wakes a thread that waits for it
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await asyncio.gather(*self._sends, return_exceptions=True)
        for environment in self._live:
            await environment.close()
        self._live.clear()
        self._idle.clear()
        if self._fork_server is not None:
            await asyncio.to_thread(self._fork_server.close)
        if self._folders is not None:
            await asyncio.to_thread(self._folders.close)
