"""A form of requests and answers besides chat completions, which need no change. Everything between
is the same for all.

    body --read--> body of a chat completion --> sampled, recorded, matched, refused as every other
    answer <--answer / stream-- chat completion, whole or in parts

One object serves one request.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession


class Dialect(Protocol):
    """One request in its form."""

    async def read(self, body: Any, session: HarnessSession) -> Any:
        """The body of a chat completion that asks for the same. Raises RefusedRequestError."""
        ...

    def answer(self, completion: dict[str, Any]) -> dict[str, Any]:
        """A whole completion in this form."""
        ...

    def stream(self, parts: AsyncIterator[str]) -> AsyncIterator[str]:
        """The events of a streamed completion in this form."""
        ...


class ErrorForm(Protocol):
    """A refusal as the body of an answer."""

    def __call__(self, refusal: RefusedRequestError) -> dict[str, Any]: ...
