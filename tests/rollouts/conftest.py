from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio

from rollcast.rollouts.base import GeneratorQueue, TrainerQueue
from rollcast.rollouts.redis_generator_queue import RedisGeneratorQueue
from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.rollouts.servers import Server, find_server

_runs = itertools.count()


@dataclass
class Wire:
    """One run on one backend: any number of both ends."""

    make_trainer: Callable[[], TrainerQueue]
    make_generator: Callable[[str], GeneratorQueue]
    _open: list[TrainerQueue | GeneratorQueue] = field(default_factory=list)

    def trainer(self) -> TrainerQueue:
        self._open.append(queue := self.make_trainer())
        return queue

    def generator(self, owner: str) -> GeneratorQueue:
        self._open.append(queue := self.make_generator(owner))
        return queue

    async def close(self) -> None:
        for queue in self._open:
            closing = queue.close()
            if closing is not None:
                await closing


@pytest.fixture(params=["6.2", "7"])
def durable_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server of the test's own that appends to a file every second, to be killed."""
    server = Server(find_server(request.param), tmp_path_factory.mktemp("durable"), appendonly=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def run_name() -> str:
    return f"test-{next(_runs)}"


@pytest.fixture(params=["memory", "6.2", "7"])
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="session")
def _servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Server]]:
    started: dict[str, Server] = {}

    def server(version: str) -> Server:
        if version not in started:
            started[version] = Server(find_server(version), tmp_path_factory.mktemp("redis"))
            started[version].start()
        return started[version]

    yield server
    for item in started.values():
        item.stop()


@pytest.fixture(params=["6.2", "7"])
def redis_server(request: pytest.FixtureRequest, _servers: Callable[[str], Server]) -> Server:
    """A shared server: each test takes a run of its own."""
    return _servers(request.param)


@pytest_asyncio.fixture
async def wire(
    backend: str, run_name: str, _servers: Callable[[str], Server]
) -> AsyncIterator[Wire]:
    if backend == "memory":
        broker = MemoryBroker()
        made = Wire(
            lambda: MemoryTrainerQueue(broker), lambda owner: MemoryGeneratorQueue(broker, owner)
        )
    else:
        server = _servers(backend)
        made = Wire(
            lambda: RedisTrainerQueue(server.settings_of("trainer"), run_name),
            lambda owner: RedisGeneratorQueue(server.settings_of("generator"), run_name, owner),
        )
    yield made
    await made.close()
