"""Headers of a request: its token, whether it is trained, whether it is sent again."""

import hmac
from typing import TYPE_CHECKING, Any, NamedTuple

from rollcast.generator.endpoint.answers import UNTRAINED
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.generator.endpoint.sessions import PREFIX

if TYPE_CHECKING:
    from starlette.requests import Request

RETRIES_HEADER = "x-stainless-retry-count"
"""How often the request was sent before."""
UNTRAINED_HEADER = "x-rollcast-untrained"
"""With 1 the request is answered and never trained, as with the second name of the model."""


class RequestHeaders(NamedTuple):
    """The headers of a request by which it is served."""

    token: bytes
    """The token that the client sends; empty = none."""
    is_untrained: bool
    is_retry: bool | None
    """Whether a client library asks again because a request had failed, as OpenAI's say. None = it
    does not say."""


def read_headers(request: "Request") -> RequestHeaders:
    """The token and the wishes that a client sends as headers."""
    headers = request.headers
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        token = ""
    retries = headers.get(RETRIES_HEADER)
    return RequestHeaders(
        token=headers.get("x-api-key", token).encode(),  # as clients of /v1/messages send it
        is_untrained=headers.get(UNTRAINED_HEADER, "0") not in ("", "0"),
        is_retry=None if retries is None else retries != "0",
    )


def is_untrained(headers: RequestHeaders, body: Any, model: str) -> bool:
    """Whether a request names the model's second name, or has the header that says the same."""
    if not isinstance(body, dict):
        return False
    return headers.is_untrained or body.get("model") == model + UNTRAINED


def check_run_token(request: "Request", run_token: bytes | None, requester: str) -> None:
    """Raises RefusedRequestError without the run's token, which a run need not have."""
    from rollcast.connections.token_gate import presents

    # Clients of Anthropic's API send it as x-api-key.
    if run_token is not None and (
        hmac.compare_digest(read_headers(request).token, run_token)
        or presents(request.scope, run_token)
    ):
        return
    remedy = (
        "this run has none, set ROLLCAST_HTTP_TOKEN"
        if run_token is None
        else "send it as the API key"
    )
    session_hint = f"a session's calls go to its own base URL, http://HOST:PORT{PREFIX}SESSION/v1"
    raise RefusedRequestError(
        f"{requester} needs http.token: {remedy}; {session_hint}", 401, "wrong_token"
    )
