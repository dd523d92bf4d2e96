"""The environments of one generator, by the names of its run file."""

from collections.abc import Callable, Sequence
from functools import partial

from rollcast.config.environments.settings import EnvironmentSettings, SessionEnvironment
from rollcast.environments.base import EnvironmentFailedError, LiveEnvironment
from rollcast.environments.kinds.kind import LiveSource, Surroundings, find_kind


def missing_in_cluster(settings: Sequence[EnvironmentSettings]) -> list[str]:
    """Sentences on pods that this generator's cluster does not start; waits for pods that try it.

    The check of a cluster's run file before its install can try no pod.
    """
    return [
        sentence
        for number, environment in enumerate(settings)
        if environment.starts_pods
        for sentence in find_kind(environment).missing(environment, f"tasks.environments.{number}")
    ]


class EnvironmentsOfRun:
    """The `Environments` of a generator, except those whose programs take the turns themselves."""

    def __init__(
        self,
        settings: Sequence[EnvironmentSettings],
        on_replaced: Callable[[str], None] = lambda name: None,
    ) -> None:
        """on_replaced: called with the name of an environment whose fork server hung
        and was ended.
        """
        self._sources: dict[str, LiveSource] = {
            environment.name: find_kind(environment).start(
                environment, Surroundings(on_replaced=partial(on_replaced, environment.name))
            )
            for environment in settings
            if not isinstance(environment, SessionEnvironment)
        }
        self._names: dict[LiveEnvironment, str] = {}
        """The names of the environments that are in use."""

    async def acquire(self, name: str) -> LiveEnvironment:
        """An environment that is free, or a new one. Raises EnvironmentFailedError."""
        source = self._sources.get(name)
        if source is None:
            raise EnvironmentFailedError("the generator's run file has no environment of this name")
        environment = await source.acquire()
        self._names[environment] = name
        return environment

    async def release(self, environment: LiveEnvironment, *, is_reusable: bool) -> None:
        """Give it back after an episode."""
        await self._sources[self._names.pop(environment)].release(
            environment, is_reusable=is_reusable
        )

    async def close(self) -> None:
        """End all."""
        for source in self._sources.values():
            await source.close()
