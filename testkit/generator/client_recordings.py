"""Recorded requests of a client, the texts that the model answered, and the record of the episode.

`python -m benchmarks.clients --record` writes such a file. A field of a body that equals the one of
the request before is left out, and a list that begins like the one before has its new end alone, so
that the file has the chat of an agent once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SAMPLING_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
MODEL = "{model}"
"""The model's name in bodies."""


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request to a session, and the answer's status."""

    method: str
    path: str
    """After the session's own."""
    headers: Mapping[str, str]
    body: Mapping[str, Any] | None
    status: int
    text: str | None
    """The text that was sampled, special tokens included. None = nothing was sampled."""
    is_complete: bool
    """Whether the model ended its text, and no limit."""


@dataclass(frozen=True, slots=True)
class SeenTurn:
    """A turn of the record."""

    sequence: int
    tool_calls: int
    malformed_calls: int


@dataclass(frozen=True, slots=True)
class ClientRecording:
    """One episode of a client."""

    client: str
    packages: tuple[str, ...]
    requests: tuple[RecordedRequest, ...]
    num_sequences: int
    turns: tuple[SeenTurn, ...]
    further_sequences: Mapping[str, float]
    """By reason."""
    refused: Mapping[str, float]
    """Refused requests by code."""
    num_replaced: float
    """Settings of sampling in place of which the run's were used."""

    def write(self, path: Path) -> None:
        fields = asdict(self)
        earlier_body: Mapping[str, Any] = {}
        for request in fields["requests"]:
            body = request["body"]
            if body is not None:
                request["body"] = _changes(earlier_body, body)
                earlier_body = body
        members = ",\n".join(
            f"{json.dumps(name)}: {_lines(value)}" for name, value in fields.items()
        )
        path.write_text(f"{{\n{members}\n}}\n")

    @classmethod
    def read(cls, path: Path) -> ClientRecording:
        fields = json.loads(path.read_text())
        earlier_body: Mapping[str, Any] = {}
        for request in fields["requests"]:
            if request["body"] is not None:
                earlier_body = request["body"] = _with_changes(earlier_body, request["body"])
        requests = tuple(RecordedRequest(**request) for request in fields.pop("requests"))
        turns = tuple(SeenTurn(**turn) for turn in fields.pop("turns"))
        packages = tuple(fields.pop("packages"))
        return cls(packages=packages, requests=requests, turns=turns, **fields)


def _lines(value: Any) -> str:
    """JSON with a line for each element of a list."""
    if not isinstance(value, list | tuple):
        return json.dumps(value)
    return "[\n" + ",\n".join(json.dumps(element) for element in value) + "\n]"


def _changes(before: Mapping[str, Any], body: Mapping[str, Any]) -> dict[str, Any]:
    changes: dict[str, Any] = {"set": {}, "added": {}, "as_before": []}
    for name, value in body.items():
        earlier = before.get(name)
        if name in before and value == earlier:
            changes["as_before"].append(name)
        elif (
            isinstance(value, list)
            and isinstance(earlier, list)
            and value[: len(earlier)] == earlier
        ):
            changes["added"][name] = value[len(earlier) :]
        else:
            changes["set"][name] = value
    return {name: change for name, change in changes.items() if change}


def _with_changes(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **changes.get("set", {}),
        **{name: [*before[name], *added] for name, added in changes.get("added", {}).items()},
        **{name: before[name] for name in changes.get("as_before", ())},
    }
