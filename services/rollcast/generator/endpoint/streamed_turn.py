"""One streamed chat completion: its turn is sampled on the engine's loop, and its parts are sent by
the server's.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from rollcast.generator.endpoint.answers import chunk_body, error_body, final_deltas, turn_fields
from rollcast.generator.endpoint.call import EndpointCall, TurnAnswer
from rollcast.generator.endpoint.chat_request import ChatRequest
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import Sessions
from rollcast.generator.endpoint.streaming import Deltas

if TYPE_CHECKING:
    from starlette.requests import Request

T = TypeVar("T")
ENDING = RefusedRequestError(
    "the generator ends; this episode begins again elsewhere", 503, "ending"
)


class StreamedTurn:
    """One streamed completion: `begin`, then `parts`."""

    def __init__(
        self,
        sessions: Sessions,
        session: HarnessSession,
        chat: ChatRequest,
        name: str,
    ) -> None:
        self._sessions = sessions
        self._session = session
        self._chat = chat
        self._name = name
        self._server_loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._tokens_before: list[int] = []
        self._tokens: list[int] = []
        self._call = EndpointCall(session, chat, self._forward_tokens)
        self._deltas = Deltas(chat.stop, has_tools=bool(chat.tools))
        self._answer_future: asyncio.Future[TurnAnswer] | None = None

    async def begin(self, request: "Request") -> None:
        """Wait until the first token, so that a refusal still has its status.

        Raises RefusedRequestError.
        """
        self._answer_future = self._sessions.on_engine(self._call.run())
        self._answer_future.add_done_callback(lambda _: self._changed.set())
        changed = asyncio.ensure_future(self._changed.wait())
        await result_unless_disconnected(request, changed, self._abandon)
        if self._answer_future.done():
            self._answer_future.result()

    async def parts(self) -> AsyncIterator[str]:
        """Server-sent events."""
        assert self._answer_future is not None
        try:
            yield self._event({"role": "assistant", "content": ""})
            while not self._answer_future.done():
                # Before the parse: tokens that arrive during it end the wait below.
                self._changed.clear()
                began_at = time.monotonic()
                for delta in self._parse_deltas():
                    yield self._event(delta)
                # Each part is parsed from the turn's first token. So the pause is at least ten
                # times the last parse: a long turn does not occupy a core.
                await asyncio.sleep(max(0.05, 10.0 * (time.monotonic() - began_at)))
                await self._changed.wait()
            try:
                turn_answer = self._answer_future.result()
            except RefusedRequestError as refusal:  # the session was closed in the middle of it
                self._session.note_refused(refusal)
                yield _event(error_body(refusal))
                return
            for delta in final_deltas(turn_answer, self._deltas):
                yield self._event(delta)
            # All at its end, as no part of the stream has a whole number of tokens.
            chunk = chunk_body(
                self._name,
                self._sessions.model,
                {},
                turn_answer.finish_reason,
                turn=turn_fields(turn_answer, self._chat, self._session.record.decode),
                prompt_token_ids=(
                    turn_answer.prompt_token_ids if self._chat.wants_token_ids else None
                ),
            )
            yield _event(chunk)
            if self._chat.wants_usage:
                chunk = chunk_body(self._name, self._sessions.model, None, usage=turn_answer.usage)
                yield _event(chunk)
            yield "data: [DONE]\n\n"
        except asyncio.CancelledError:  # the server stops
            yield _event(error_body(ENDING))
        finally:
            if not self._answer_future.done():
                self._abandon()

    def _abandon(self) -> None:
        self._sessions.loop.call_soon_threadsafe(self._call.abandon)
        self._changed.set()

    def _forward_tokens(self, tokens_before: list[int], tokens: list[int]) -> None:
        """On the engine's loop."""
        # The stream is read in the thread of the server, whose event may be set there only.
        self._server_loop.call_soon_threadsafe(self._note, tokens_before, tokens)

    def _note(self, tokens_before: list[int], tokens: list[int]) -> None:
        self._tokens_before = tokens_before
        self._tokens = tokens
        self._changed.set()

    def _parse_deltas(self) -> list[dict[str, Any]]:
        turn = self._session.parts.renderer.parse(
            self._tokens_before, self._tokens, self._chat.tools
        )
        return self._deltas.sendable_parts(turn.reasoning, turn.content, has_calls=bool(turn.calls))

    def _event(self, delta: dict[str, Any]) -> str:
        return _event(chunk_body(self._name, self._sessions.model, delta))


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body)}\n\n"


async def result_unless_disconnected(
    request: "Request", awaited: asyncio.Future[T], abandon: Callable[[], object]
) -> T:
    """The result of a wait; `abandon` ends it, and is called if the client is gone before."""
    while not awaited.done():
        message = asyncio.ensure_future(request.receive())
        try:
            waits: set[asyncio.Future[Any]] = {awaited, message}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            message.cancel()
        if not awaited.done() and message.result()["type"] == "http.disconnect":
            abandon()
            break
    return await awaited
