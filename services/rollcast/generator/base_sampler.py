"""The base of samplers of one rollout: a single answer, or an episode in an environment."""

from abc import ABC, abstractmethod
from collections.abc import Callable

from rollcast.generator.grading import Graded
from rollcast.rollouts.records import Rollout
from rollcast.wire.version import PolicyVersion


class Sampler(ABC):
    """Samples one rollout of a task; `run` returns it finished, or partial after `stop`."""

    def __init__(self) -> None:
        self._stopped = False
        self._restart = False
        """Whether the tokens so far are thrown away before more are sampled."""

    async def run(self) -> None:
        """Sample until it is finished or `stop` was called.

        Raises the engine's errors, and UserError.
        """
        while not self._stopped:
            if self._restart:
                self._begin_again()
            if self.finished:
                return
            await self._sample()

    @property
    @abstractmethod
    def finished(self) -> bool: ...

    @property
    def occupies_slot(self) -> bool:
        """Whether it samples, waits to sample, or soon will."""
        return not self.finished

    @property
    def num_kv_tokens(self) -> int:
        """Tokens whose KV it wants kept while it occupies no slot."""
        return 0

    @property
    def verdict(self) -> Graded | None:
        """A verdict that was given with the rollout; None = a verifier gives it."""
        return None

    @property
    @abstractmethod
    def answer_token_ids(self) -> list[int]:
        """Tokens that a verifier grades."""

    def stop(self) -> None:
        """End `run` soon, with the tokens so far."""
        self._stopped = True
        self._abort()

    def restart_if(self, lost: Callable[[PolicyVersion], bool]) -> bool:
        """Begin again, in this `run` or the next, if a lost version has or may have sampled a
        token.
        """
        if not any(lost(version) for version in self._versions):
            return False
        self._restart = True
        self._abort()
        return True

    @abstractmethod
    def rollout(self) -> Rollout:
        """The record. Call it once, after `Engine.observe`, because it counts the preemptions."""

    @property
    @abstractmethod
    def _versions(self) -> set[PolicyVersion]:
        """Versions that have or may have sampled a token."""

    @abstractmethod
    def _begin_again(self) -> None:
        """Throw the tokens away."""

    @abstractmethod
    async def _sample(self) -> None:
        """Sample until the rollout has ended, or `_abort` was called."""

    @abstractmethod
    def _abort(self) -> None:
        """Make `_sample` return soon."""
