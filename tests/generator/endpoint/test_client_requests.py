"""Requests that were recorded from each client, sent again: the record is the one that was seen
with a real engine. `python -m benchmarks.clients --record` writes the files.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rollcast.chat.make import make_renderer
from rollcast.config.model import Model
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.chat_tokenizers import make_chat_tokenizer
from testkit.generator.client_recordings import MODEL as RECORDED_MODEL
from testkit.generator.client_recordings import ClientRecording, RecordedRequest
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, served_endpoint
from testkit.generator.played_sessions import play_session
from testkit.generator.text_engine import CALL, TextEngine

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
"""The first test to import vLLM waits for it, on a busy machine for minutes."""
FILES = sorted((Path(__file__).with_name("client_requests")).glob("*.json"))
MAX_TOKENS = 1 << 20
"""No recording reaches it."""
REPLACED = "replaced settings"
Tokens = tuple[list[int], list[int]]
"""Tokens of a request to the engine, and of its answer."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endpoint() -> AsyncIterator[ServedEndpoint]:
    engine = TextEngine(make_chat_tokenizer("qwen3"))
    settings = {"reset_seconds": 60, "call_seconds": 60, "sampling": "run"}
    async with served_endpoint(engine, settings) as served:
        served.parts.renderer = make_renderer(Model(path="/model"), engine.tokenizer)
        served.parts.max_sequence_tokens = MAX_TOKENS
        yield served


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
async def test_the_record_of_a_client_is_the_one_that_was_seen(
    file: Path, endpoint: ServedEndpoint
) -> None:
    recording = ClientRecording.read(file)
    trained: list[Tokens] = []

    async def program(_: Any, session: HarnessSession) -> None:
        trained.extend(await _send_all(endpoint, session, recording))

    before = _counts(endpoint)
    task = episode_task(1, 1, LengthBudget(max_tokens=MAX_TOKENS), max_turns=100)
    _, rollout = await play_session(endpoint, task, program)
    assert _counts(endpoint) - before == Counter(
        {
            **recording.further_sequences,
            **recording.refused,
            **({REPLACED: recording.num_replaced} if recording.num_replaced else {}),
        }
    )
    assert rollout.episode is not None
    assert [
        (turn.sequence, turn.tool_calls, turn.malformed_calls) for turn in rollout.episode.turns
    ] == [(turn.sequence, turn.tool_calls, turn.malformed_calls) for turn in recording.turns]
    assert len(rollout.sequences) == recording.num_sequences
    _check_tokens(rollout, task.prompt_token_ids, trained)


async def _send_all(
    endpoint: ServedEndpoint, session: HarnessSession, recording: ClientRecording
) -> list[Tokens]:
    """Send the requests in turn; returns the tokens of those that are trained."""
    engine: TextEngine = endpoint.engine
    described = endpoint.sessions.describe_session(session, endpoint.sessions.url)
    trained = []
    async with httpx.AsyncClient(
        base_url=described["base_url"].removesuffix("/v1"),
        headers={"authorization": f"Bearer {described['token']}"},
        timeout=60.0,
    ) as client:
        for request in recording.requests:
            num_answered = len(engine.answers)
            engine.texts.extend([] if request.text is None else [request.text])
            await _send(client, request)
            assert not engine.texts
            if request.text is None:
                continue
            (answered,) = engine.answers[num_answered:]
            prompt = engine.decode(answered[0])
            assert all(text in prompt for text in _last_texts(request))
            if not _is_untrained(request):
                trained.append(answered)
    return trained


async def _send(client: httpx.AsyncClient, request: RecordedRequest) -> None:
    body = None
    if request.body is not None:
        model = str(request.body.get("model", "")).replace(RECORDED_MODEL, MODEL)
        body = {**request.body, "model": model}
    answer = await client.request(request.method, request.path, json=body, headers=request.headers)
    assert answer.status_code == request.status, answer.text
    if request.text is not None:
        _check_answer(answer.text, request.text, request.path)


def _check_answer(answer: str, text: str, path: str) -> None:
    """An answer in any dialect, streamed or whole, has the calls of the text, or its first line."""
    assert '{"error"' not in answer
    assert '"type": "error"' not in answer
    calls = CALL.findall(text)
    for call in calls:
        assert json.dumps(json.loads(call)["name"]) in answer
        # A response repeats the names of its request's tools.
        assert path != "/v1/responses" or '"call_id"' in answer
    if not calls:
        (line, *_) = text.removesuffix("<|im_end|>").splitlines()
        assert json.dumps(line)[1:-1] in answer


def _is_untrained(request: RecordedRequest) -> bool:
    assert request.body is not None
    return str(request.body["model"]).endswith("-untrained")


def _last_texts(request: RecordedRequest) -> Iterator[str]:
    """Texts of the last message or item of a chat."""
    assert request.body is not None
    chat = request.body.get("messages") or request.body["input"]
    return _texts(chat[-1] if isinstance(chat, list) else {"content": chat})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for element in value:
            yield from _texts(element)
    elif isinstance(value, dict):
        for name in ("content", "text", "output"):
            member = value.get(name)
            if isinstance(member, str):
                yield member.strip()
            else:
                yield from _texts(member)


def _counts(endpoint: ServedEndpoint) -> Counter[str]:
    """Further sequences by reason, refused requests by code, and replaced settings, so far."""
    labels = {
        episode_metrics.ENDPOINT_EXTRA_SEQUENCES.name: "reason",
        episode_metrics.ENDPOINT_REFUSED.name: "code",
    }
    counts = Counter({REPLACED: int(endpoint.count(episode_metrics.ENDPOINT_REPLACED))})
    for family in endpoint.parts.exporter.registry.collect():
        for sample in family.samples:
            if sample.name in labels:
                counts[sample.labels[labels[sample.name]]] += int(sample.value)
    return counts


def _check_tokens(rollout: Rollout, task_prompt: Any, trained: list[Tokens]) -> None:
    """The engine's tokens are recorded, and each prompt begins with all of its sequence before."""
    assert rollout.episode is not None
    recorded = []
    for turn in rollout.episode.turns:
        sequence = rollout.sequences[turn.sequence]
        tokens = sequence.token_ids.tolist()
        prompt = rollout.sequence_prompt(sequence, task_prompt).tolist()
        recorded.append((prompt + tokens[: turn.start], tokens[turn.start : turn.end]))
    assert recorded == trained
    ends: dict[int, list[int]] = {}
    for turn, (prompt, tokens) in zip(rollout.episode.turns, trained, strict=True):
        before = ends.get(turn.sequence, [])
        assert prompt[: len(before)] == before
        ends[turn.sequence] = prompt + tokens
