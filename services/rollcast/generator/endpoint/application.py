"""The endpoint over HTTP, in the thread of the generator's server; sampling runs on the engine's
loop.

    POST /rollcast/SESSION/v1/chat/completions       with tools, as a stream or not
    POST /rollcast/SESSION/v1/responses              the same in OpenAI's newer form
    POST /rollcast/SESSION/v1/messages               the same in Anthropic's form
    POST /rollcast/SESSION/v1/messages/count_tokens  the tokens of such a request
    GET  /rollcast/SESSION/v1/models                 the model's name
    POST /rollcast/SESSION/inference/v1/generate     tokens in, tokens out
    POST /rollcast/SESSION/reward                    {"reward": 0.5}
    POST /rollcast/v1/sessions                       the next task of an outside program
    POST /rollcast/SESSION/end                       it reports the end: {}, or {"failed": "why"}

    Without /rollcast/SESSION those of /v1 and /inference answer with the run's token, and nothing
    of it is trained.

Bodies are bounded. A request ends with its episode's time, or when its client is gone.
"""

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rollcast.connections.http import in_url
from rollcast.generator.endpoint.answers import (
    completion_body,
    error_body,
    models_body,
)
from rollcast.generator.endpoint.bodies import MAX_TOKENS
from rollcast.generator.endpoint.body_turns import BodyTurns
from rollcast.generator.endpoint.call import EndpointCall, TurnAnswer
from rollcast.generator.endpoint.dialects.anthropic_messages import (
    AnthropicMessages,
    anthropic_error,
    count_tokens,
)
from rollcast.generator.endpoint.dialects.dialect import Dialect, ErrorForm
from rollcast.generator.endpoint.dialects.responses import Responses
from rollcast.generator.endpoint.protocol import read_request
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.request_headers import (
    check_run_token,
    is_untrained,
    read_headers,
)
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.endpoint.sessions import PREFIX, Sessions
from rollcast.generator.endpoint.streamed_turn import (
    ENDING,
    StreamedTurn,
    result_unless_disconnected,
)
from rollcast.generator.endpoint.token_request import TokenRequest, generated_body
from rollcast.generator.episodes.parts import MAX_REASON_CHARACTERS
from rollcast.telemetry.logging import get_logger

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

NEXT_TASK_SECONDS = 30.0
"""How long a request for a task may wait. Then it is answered without one, and the program asks
again."""
MAX_WAITING_PROGRAMS = 256
"""Requests for a task that may wait at the same time. More would take connections from probes and
completions."""

GUARDED_HERE = frozenset({PREFIX, "/v1/", "/inference/"})
"""Paths whose tokens the endpoint checks itself: its refusals are in the form that clients of the
OpenAI API read."""

log = get_logger()
Handler = Callable[["Request", HarnessSession], Coroutine[Any, Any, "Response"]]


class EndpointApplication:
    """The endpoint's routes, for the server of a generator."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._num_waiting = 0
        self._turns = BodyTurns()

    def routes(self) -> "list[Route]":
        """All paths of the endpoint."""
        from starlette.routing import Route

        session_path = f"{PREFIX}{{session}}"
        sampling: list[tuple[str, Handler, ErrorForm]] = [
            ("/v1/chat/completions", partial(self._chat, None), error_body),
            ("/v1/responses", partial(self._chat, Responses), error_body),
            ("/v1/messages", partial(self._chat, AnthropicMessages), anthropic_error),
            ("/v1/messages/count_tokens", self._count_tokens, anthropic_error),
            ("/inference/v1/generate", self._generate, error_body),
        ]
        ends: list[tuple[str, Handler, ErrorForm]] = [
            ("/reward", self._reward, error_body),
            ("/end", self._end, error_body),
        ]
        return [
            Route(f"{PREFIX}v1/sessions", self._next_task, methods=["POST"]),
            *self._routes_below(session_path, [*sampling, *ends], "/{path:path}"),
            *self._routes_below("", sampling, "/v1/{path:path}"),
        ]

    def _routes_below(
        self, prefix: str, posted: "Sequence[tuple[str, Handler, ErrorForm]]", unserved_path: str
    ) -> "Iterator[Route]":
        """The routes of paths that are posted to, of the models, and of all other paths."""
        from starlette.routing import Route

        for path, handler, form in posted:
            yield Route(prefix + path, self._in_session(handler, form), methods=["POST"])
        yield Route(f"{prefix}/v1/models", self._in_session(self._models))
        # Starlette takes the first route that matches, so the one for all other paths is the last.
        yield Route(prefix + unserved_path, self._in_session(_not_served), methods=["GET", "POST"])

    def _in_session(self, handler: Handler, error_form: ErrorForm = error_body) -> Any:
        """A handler of requests that carry a session and its token, or the run's token: each of
        these has a session of its own. Refusals are answers.
        """
        from starlette.requests import Request

        async def answer(request: Request) -> "Response":
            session: HarnessSession | None = None
            try:
                if "session" in request.path_params:
                    name = request.path_params["session"]
                    session = self._sessions.find(name, read_headers(request).token)
                else:
                    check_run_token(request, self._sessions.run_token, "a call without a session")
                    session = self._single_session(None)
                return await handler(request, session)
            except RefusedRequestError as refusal:
                if session is not None:
                    session.note_refused(refusal)
                return _refusal_response(refusal, error_form)
            except asyncio.CancelledError:  # the server stops, and waits for no request longer
                return _refusal_response(ENDING, error_form)
            except Exception as error:  # the engine is dead, say: the claim loop ends the process
                log.error("a request of a harness failed", reason=repr(error)[:500])
                failure = RefusedRequestError(
                    "the generator failed; this episode begins again", 500, "failed"
                )
                return _refusal_response(failure, error_form)

        return answer

    def _single_session(self, asking: HarnessSession | None) -> HarnessSession:
        """A session for one request that is never trained. `asking`: the session of its program."""
        if self._sessions.make_single is None:
            raise RefusedRequestError("the engine is not running; retry later", 503, "no_weights")
        return self._sessions.make_single(asking)

    async def _chat(
        self,
        make_dialect: Callable[[Sessions], Dialect] | None,
        request: "Request",
        session: HarnessSession,
    ) -> "Response":
        """A completion. `make_dialect`: None = the request is a chat completion itself."""
        from starlette.responses import JSONResponse, StreamingResponse

        replaces = session.settings.sampling == "run"
        dialect = make_dialect(self._sessions) if make_dialect is not None else None
        model = self._sessions.model
        headers = read_headers(request)
        async with self._turns.read(request) as body:
            if dialect is not None:
                body = await dialect.read(body, session)
            if is_untrained(headers, body, model):
                body = {**body, "model": model}
                session = self._single_session(session)
            chat = read_request(
                body,
                model,
                session.task.sampling,
                replaces=replaces,
                is_retry=headers.is_retry,
            )
        self._sessions.note_replaced(session, chat.replaced_settings)
        name = f"chatcmpl-{session.id}-{time.monotonic_ns()}"
        if chat.is_streamed:
            stream = StreamedTurn(self._sessions, session, chat, name)
            await stream.begin(request)
            parts = stream.parts()
            events = parts if dialect is None else dialect.stream(parts)
            return StreamingResponse(events, media_type="text/event-stream")
        turn_answer = await self._answer(request, EndpointCall(session, chat))
        completion = completion_body(turn_answer, chat, session.record.decode, name, model)
        return JSONResponse(completion if dialect is None else dialect.answer(completion))

    def _answer(self, request: "Request", call: EndpointCall) -> Coroutine[Any, Any, TurnAnswer]:
        """The turn of a call, or the end of the call when its client is gone.

        Sessions live on the engine's loop, and handlers run in the thread of the server.
        """
        return result_unless_disconnected(
            request,
            self._sessions.on_engine(call.run()),
            partial(self._sessions.loop.call_soon_threadsafe, call.abandon),
        )

    async def _count_tokens(self, request: "Request", session: HarnessSession) -> "Response":
        from starlette.responses import JSONResponse

        async with self._turns.read(request) as body:
            num_tokens = await count_tokens(body, session, self._sessions)
        return JSONResponse({"input_tokens": num_tokens})

    async def _models(self, request: "Request", session: HarnessSession) -> "Response":
        from starlette.responses import JSONResponse

        return JSONResponse(models_body(self._sessions.model))

    async def _reward(self, request: "Request", session: HarnessSession) -> "Response":
        from starlette.responses import JSONResponse

        async with self._turns.read(request) as body:
            reward = body.get("reward") if isinstance(body, dict) else None
        low, high = session.settings.reward_range
        # True is 1, as in a class and in a verifier.
        if not isinstance(reward, int | float) or not low <= reward <= high:
            # Characters of a refused reward in the message
            reward_text = repr(reward)[:100]
            raise RefusedRequestError(
                f"reward = {reward_text}: give a number from {low:g} to {high:g}, the "
                "environment's reward_range",
                code="reward",
            )
        if session.is_closed:
            raise RefusedRequestError("this session has ended", 404, "session_ended")
        session.note_reward(float(reward))
        return JSONResponse({"used": not session.task.verifier})

    async def _generate(self, request: "Request", session: HarnessSession) -> "Response":
        from starlette.responses import JSONResponse

        replaces = session.settings.sampling == "run"
        sampling = session.task.sampling
        headers = read_headers(request)
        async with self._turns.read(request, MAX_TOKENS) as body:
            if is_untrained(headers, body, self._sessions.model):
                session = self._single_session(session)
            token_request = TokenRequest.read(
                body, sampling, replaces=replaces, is_retry=headers.is_retry
            )
        self._sessions.note_replaced(session, token_request.replaced_settings)
        turn_answer = await self._answer(request, EndpointCall(session, token_request))
        return JSONResponse(
            generated_body(turn_answer, f"generate-{time.monotonic_ns()}", self._sessions.model)
        )

    async def _end(self, request: "Request", session: HarnessSession) -> "Response":
        from starlette.responses import JSONResponse

        if session.settings.is_started_here:
            raise RefusedRequestError(
                "this session ends with its program, which was started here; leave this call out"
            )
        async with self._turns.read(request) as body:
            failure_reason = body.get("failed") if isinstance(body, dict) else None
        session.note_end(str(failure_reason or "")[:MAX_REASON_CHARACTERS])
        return JSONResponse({})

    async def _next_task(self, request: "Request") -> "Response":
        """The next task for an outside program, which has the run's token."""
        try:
            check_run_token(request, self._sessions.run_token, "a program that asks for a task")
            return await self._offer_task(request)
        except RefusedRequestError as refusal:
            return _refusal_response(refusal)
        except asyncio.CancelledError:  # as above
            return _refusal_response(ENDING)

    async def _offer_task(self, request: "Request") -> "Response":
        from starlette.responses import JSONResponse, Response

        if self._num_waiting >= MAX_WAITING_PROGRAMS:
            raise RefusedRequestError(
                f"{MAX_WAITING_PROGRAMS} programs wait for a task here; ask another generator, or "
                "later",
                503,
                "enough_programs",
            )
        session = await self._claim_session(request)
        if session is None:
            return Response(status_code=204)
        # The address of this very generator, whatever name it was found by.
        host, port = request.scope["server"]
        session_description = self._sessions.describe_session(
            session, f"{request.url.scheme}://{in_url(host)}:{port}"
        )
        row = json.loads(session.task.reference)
        return JSONResponse({**session_description, "environment": session.environment, "row": row})

    async def _claim_session(self, request: "Request") -> HarnessSession | None:
        """A session for the program that asks; None = none came in time, or the program is gone."""
        claim_future = self._sessions.on_engine(self._sessions.next_task(NEXT_TASK_SECONDS))
        self._num_waiting += 1
        try:
            return await result_unless_disconnected(request, claim_future, claim_future.cancel)
        except asyncio.CancelledError:
            # `result_unless_disconnected` cancels the claim when the program is gone. Any other
            # cancellation is the stop of the server.
            if not claim_future.cancelled():
                raise
            return None
        finally:
            self._num_waiting -= 1


async def _not_served(request: "Request", session: HarnessSession) -> "Response":
    path = request.url.path.rpartition("/v1/")[2]
    raise RefusedRequestError(
        f"/v1/{path[:100]} is not served: sessions are recorded from /v1/chat/completions, "
        "/v1/responses and /v1/messages",
        404,
        "not_served",
    )


def _refusal_response(
    refusal: RefusedRequestError, error_form: ErrorForm = error_body
) -> "Response":
    from starlette.responses import JSONResponse

    # Client libraries repeat a request that failed unless they are asked not to.
    return JSONResponse(error_form(refusal), refusal.status, headers={"x-should-retry": "false"})
