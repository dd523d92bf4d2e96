"""A client of Anthropic's messages for tests of the endpoint."""

from __future__ import annotations

import json
from typing import Any

import httpx

from rollcast.generator.endpoint.session import HarnessSession
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint


class AnthropicClient:
    """A client of /v1/messages, written to its documentation:
    https://docs.anthropic.com/en/api/messages
    """

    def __init__(self, endpoint: ServedEndpoint, session: HarnessSession, **headers: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"{endpoint.sessions.url}/rollcast/{session.id}",
            headers={"x-api-key": session.token, "anthropic-version": "2023-06-01", **headers},
            timeout=60.0,
        )

    async def create(self, **body: Any) -> httpx.Response:
        return await self._http.post(
            "/v1/messages", json={"model": MODEL, "max_tokens": 40, **body}
        )

    async def stream(self, **body: Any) -> tuple[dict[str, Any], list[str]]:
        """The message that the events make, and their kinds."""
        message: dict[str, Any] = {}
        arguments: dict[int, str] = {}
        kinds = []
        body = {"model": MODEL, "max_tokens": 40, "stream": True, **body}
        async with self._http.stream("POST", "/v1/messages", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                kinds.append(event["type"])
                match event["type"]:
                    case "message_start":
                        message = event["message"]
                    case "content_block_start":
                        assert event["index"] == len(message["content"])
                        message["content"].append(event["content_block"])
                    case "content_block_delta":
                        block = message["content"][event["index"]]
                        delta = event["delta"]
                        if delta["type"] == "text_delta":
                            block["text"] += delta["text"]
                        elif delta["type"] == "input_json_delta":
                            arguments[event["index"]] = (
                                arguments.get(event["index"], "") + delta["partial_json"]
                            )
                    case "message_delta":
                        message |= event["delta"]
                        message["usage"] |= event["usage"]
        for index, text in arguments.items():
            message["content"][index]["input"] = json.loads(text)
        return message, kinds

    async def count(self, **body: Any) -> httpx.Response:
        return await self._http.post("/v1/messages/count_tokens", json={"model": MODEL, **body})

    async def close(self) -> None:
        await self._http.aclose()
