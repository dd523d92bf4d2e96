"""An engine without a model: every running request gains one token per `advance`, of the version
then held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rollcast.generator.vllm.engine_request import BadRequestError, EngineRequest, Sampled
from rollcast.rollouts.records import VersionSpan
from rollcast.wire.version import PolicyVersion


@dataclass(eq=False)
class _Running:
    request: EngineRequest
    versions: list[PolicyVersion] = field(default_factory=list)
    ended: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class ScriptedEngine:
    """`num_tokens(prompt)`: after how many tokens in all, prompt included,
    the model ends its text.
    """

    def __init__(
        self, num_tokens: Callable[[EngineRequest], int] = lambda request: 1 << 30
    ) -> None:
        self._num_tokens = num_tokens
        self.version: PolicyVersion | None = None
        self.newest_version: PolicyVersion | None = None
        self.failed = False
        self.applied: list[PolicyVersion] = []
        self.running: list[_Running] = []
        self.most_running = 0
        self.salts: list[str] = []
        self._changed = asyncio.Condition()

    @property
    def num_running(self) -> int:
        return len(self.running)

    async def apply(self, version: PolicyVersion) -> None:
        async with self._changed:
            self.version = self.newest_version = version
            self.applied.append(version)
            self._changed.notify_all()

    async def withdraw(self) -> None:
        self.version = None

    async def sample(self, request: EngineRequest) -> Sampled:
        async with self._changed:
            await self._changed.wait_for(lambda: request.aborted or self.version is not None)
        if request.aborted:
            return Sampled("", [], [], [], "abort", 0)
        if request.token_ids[0] == 666:
            raise BadRequestError("unlucky prompt")
        assert self.version is not None
        self.salts.append(request.salt(self.version))
        request.first_version = self.version
        running = _Running(request)
        self.running.append(running)
        self.most_running = max(self.most_running, len(self.running))
        try:
            finish = await running.ended
        finally:
            self.running.remove(running)
        spans = [VersionSpan(version, at, at + 1) for at, version in enumerate(running.versions)]
        count = len(running.versions)
        base = len(request.token_ids)
        return Sampled(
            str(id(request)),
            [base + at for at in range(count)],
            [-float(base + at) for at in range(count)],
            spans,
            finish,  # type: ignore[arg-type]
            0,
        )

    def abort(self, request: EngineRequest) -> None:
        request.aborted = True
        for running in self.running:
            if running.request is request and not running.ended.done():
                running.ended.set_result("abort")
        asyncio.get_running_loop().create_task(self._wake())

    def versions_since(self, request: EngineRequest) -> set[PolicyVersion]:
        if request.first_version is None:
            return set()
        return set(self.applied[self.applied.index(request.first_version) :])

    async def observe(self) -> None:
        pass

    def decode(self, token_ids: list[int]) -> str:
        return "|1"

    async def advance(self, steps: int) -> None:
        """Let every running request sample up to `steps` tokens; then all other tasks run for a
        moment.
        """
        assert self.version is not None
        for running in list(self.running):
            for _ in range(steps):
                if running.ended.done():
                    break
                running.versions.append(self.version)
                if len(running.request.token_ids) + len(running.versions) >= self._num_tokens(
                    running.request
                ):
                    running.ended.set_result("stop")
                elif len(running.versions) == running.request.max_tokens:
                    running.ended.set_result("length")
                elif running.request.on_tokens is not None:
                    base = len(running.request.token_ids)
                    running.request.on_tokens([base + at for at in range(len(running.versions))])
        await asyncio.sleep(0.02)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()
