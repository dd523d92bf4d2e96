"""The environments of one generator, by the names of its run file."""

from collections.abc import Callable, Sequence
from functools import partial

from rollcast.config.environments.openenv import OpenEnvironment
from rollcast.config.environments.own_class import ClassEnvironment
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.environments.tool_set import ToolSet
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.hosted.live import HostedEnvironment
from rollcast.environments.hosted.processes import EnvironmentProcesses
from rollcast.environments.openenv.processes import OpenEnvSession, OpenEnvSessions
from rollcast.environments.tools.mcp_servers import McpServers
from rollcast.environments.tools.tool_set import ToolSetEnvironment


class EnvironmentsOfRun:
    """The `Environments` of a generator: processes of its own, and servers that its episodes share."""

    def __init__(
        self, settings: Sequence[EnvironmentSettings], on_replaced: Callable[[str], None] = lambda name: None
    ) -> None:
        """on_replaced: called with the name of an environment whose fork server hung and was ended."""
        self._settings = {one.name: one for one in settings}
        self._processes: dict[str, EnvironmentProcesses] = {}
        self._sessions: dict[str, OpenEnvSessions] = {}
        self._servers: dict[str, McpServers] = {}
        for one in settings:
            if isinstance(one, ClassEnvironment) or (isinstance(one, ToolSet) and one.tools):
                self._processes[one.name] = EnvironmentProcesses(one, partial(on_replaced, one.name))
            if isinstance(one, OpenEnvironment):
                self._sessions[one.name] = OpenEnvSessions(one)
            if isinstance(one, ToolSet) and one.mcp:
                self._servers[one.name] = McpServers(one.mcp, one.reset_seconds, one.call_seconds)
        self._names: dict[LiveEnvironment, str] = {}
        """The names of the environments that are in use."""

    async def acquire(self, name: str) -> LiveEnvironment:
        """An environment that is free, or a new one. Raises EnvironmentFailedError."""
        settings = self._settings.get(name)
        if settings is None:
            raise EnvironmentFailedError("the generator's run file has no environment of this name")
        processes = self._processes.get(name)
        hosted = None if processes is None else await processes.acquire()
        environment: LiveEnvironment
        if isinstance(settings, ToolSet):
            replace = None if processes is None else processes.replace
            environment = ToolSetEnvironment(settings, hosted, self._servers.get(name), replace)
        elif isinstance(settings, OpenEnvironment):
            environment = await self._sessions[name].acquire()
        else:
            assert hosted is not None, f"{name}: a class has processes"
            environment = hosted
        self._names[environment] = name
        return environment

    async def release(self, environment: LiveEnvironment, *, is_reusable: bool) -> None:
        """Give it back after an episode."""
        name = self._names.pop(environment)
        hosted = environment.functions if isinstance(environment, ToolSetEnvironment) else environment
        if isinstance(hosted, HostedEnvironment):
            await self._processes[name].release(hosted, is_reusable=is_reusable)
        if isinstance(hosted, OpenEnvSession):
            await self._sessions[name].release(hosted, is_reusable=is_reusable)

    async def close(self) -> None:
        """End all."""
        for servers in self._servers.values():
            await servers.close()
        for processes in self._processes.values():
            await processes.close()
        for sessions in self._sessions.values():
            await sessions.close()
