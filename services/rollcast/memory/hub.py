"""The beginning of a file of a model on the hub, fetched with a range request.

HF_ENDPOINT and HF_TOKEN count as for the hub's own client, which an installation without
Transformers does not have.
"""

import os
import time
from collections.abc import Generator, Iterable

HUB = "https://huggingface.co"
ALL_FILES_SECONDS = 60.0
"""How long all files of one model may take together: a header each of at most some hundred."""


def hub_limit() -> float:
    """The time on the monotonic clock by which the files of a model must have been read."""
    return time.monotonic() + ALL_FILES_SECONDS


def hub_url(model: str, name: str) -> str:
    return f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{model}/resolve/main/{name}"


def hub_file(model: str, name: str, *, deadline: float) -> Generator[bytes]:
    """The file piece by piece; the transfer ends when the generator is closed.

    Raises httpx.HTTPError, httpx.InvalidURL, and TimeoutError after `deadline`.
    """
    import httpx

    token = os.environ.get("HF_TOKEN")
    # Most bytes of one file, which is the largest header that is read.
    max_fetched_bytes = 32 << 20
    headers = {"Range": f"bytes=0-{max_fetched_bytes - 1}", "Accept-Encoding": "identity"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    # How long one answer, or the next piece of it, may take
    request = httpx.stream(
        "GET", hub_url(model, name), headers=headers, timeout=10.0, follow_redirects=True
    )
    with request as answer:
        answer.raise_for_status()
        for piece in answer.iter_raw():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} of {model} on the hub is not here in time")
            yield piece


def beginning(pieces: Iterable[bytes], num_bytes: int) -> bytes:
    """The next pieces of a file up to at least `num_bytes`, or to its end. The rest is not read."""
    content = bytearray()
    if num_bytes > 0:
        for piece in pieces:
            content += piece
            if len(content) >= num_bytes:
                break
    return bytes(content)
