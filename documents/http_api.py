"""The forecaster's HTTP API, from its own OpenAPI document, and the paths of a generator's
endpoint.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

from documents.tables import table
from rollcast.forecaster.api import build_application
from rollcast.forecaster.board import Board
from rollcast.forecaster.engine import ForecastEngine
from rollcast.forecaster.folder_tail import FolderTail
from rollcast.forecaster.history import History
from rollcast.forecaster.metrics import ForecastMetrics
from rollcast.forecaster.push_api import push_router
from rollcast.generator.endpoint import application

Node = dict[str, Any]
INTRODUCTION = """# HTTP

Every service answers `/healthz`, `/readyz` and `/metrics`. `/healthz` and `/readyz` answer 200, or
503 with the reason. With `http.token`, all pages except these two ask for it: as a bearer token, or
in a browser as the password.

The forecaster also serves the following. `/` is the live page. A mistake of the caller is a 4xx
with one sentence in `detail`. `/openapi.json` describes the same for programs.

"""

ENDPOINT = """## The endpoint of a generator

Of runs with harnesses. SESSION and its token come with a task ([own
harness](../episodes.md#your-own-harness)): as variables of a program, or as the answer to `POST
/rollcast/v1/sessions`: `session`, `base_url`, `reward_url`, `end_url`, `token`, `model`,
`environment`, `row`. 204 = no task within 30 seconds, ask again. Without `/rollcast/SESSION` the
first three answer with `http.token`, up to eight calls at a time, never trained. A refusal has one
sentence in `error.message`.

"""


def http_page() -> str:
    document = openapi()
    said = INTRODUCTION
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            said += _section(document, f"{method.upper()} {path}", operation)
    return said.rstrip() + "\n\n" + _endpoint()


def _endpoint() -> str:
    """The paths for agents, as the endpoint's own module lists them."""
    paths = [
        line.strip() for line in (application.__doc__ or "").splitlines() if line.startswith("    ")
    ]
    found = [re.match(r"(GET|POST) +(\S+) +(.+)", line) for line in paths]
    rows = [(f"`{one[1]} {one[2]}`", one[3]) for one in found if one]
    return ENDPOINT + table(("path", "what for"), rows).rstrip() + "\n"


def openapi() -> Node:
    """The OpenAPI document of a real forecaster."""
    with tempfile.TemporaryDirectory() as folder:
        board, metrics, history = (
            Board(),
            ForecastMetrics("none"),
            History(Path(folder) / "history.sqlite"),
        )
        try:
            engine = ForecastEngine(board, history, metrics)
            application = build_application(
                board, history, metrics, engine, FolderTail("none", Path(folder))
            )
            application.include_router(push_router(engine, board, None))
            return application.openapi()
        finally:
            history.close()


def _section(document: Node, title: str, operation: Node) -> str:
    said = f"## {title}\n\n{operation.get('description', operation.get('summary', ''))}\n\n"
    rows = [
        (
            f"`{item['name']}`",
            item["in"],
            "yes" if item.get("required") else "no",
            item.get("description", ""),
        )
        for item in operation.get("parameters", ())
    ]
    said += table(("parameter", "in", "required", "meaning"), rows)
    body = _schema(document, operation.get("requestBody", {}))
    if body:
        said += "The body, as JSON:\n\n" + _fields(body)
    answer = _schema(document, operation["responses"].get("200", {}))
    if answer:
        said += "The answer:\n\n" + _fields(answer)
    return said


def _schema(document: Node, node: Node) -> Node:
    """The schema of a JSON body; empty for other bodies."""
    schema: Node = node.get("content", {}).get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return schema if "properties" in schema else {}


def _fields(schema: Node) -> str:
    rows = [
        (f"`{name}`", _kind(node), node.get("description", ""))
        for name, node in schema["properties"].items()
    ]
    return table(("field", "kind", "meaning"), rows)


def _kind(node: Node) -> str:
    if "$ref" in node:
        return str(node["$ref"].rsplit("/", 1)[1])
    if "anyOf" in node:
        return " or ".join(_kind(item) for item in node["anyOf"])
    if node.get("type") == "array":
        return f"list of {_kind(node.get('items', {}))}"
    return str(node.get("type", node.get("const", "any")))
