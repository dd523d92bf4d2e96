"""The endpoint with the `openai` client and a real engine: what is recorded is what was sampled,
token by token.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from rollcast.generator.endpoint.session import HarnessSession
from rollcast.rollouts.records import EpisodeEnd, GradingStatus, LengthBudget, Rollout
from rollcast.telemetry import episode_metrics
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, ServedEndpoint, make_client, served_endpoint
from testkit.generator.played_sessions import answer_calls, check_exact, play_session
from testkit.generator.scripted_world import TOOLS
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

STOP_TOKENS = (5, 17)
USER = {"role": "user", "content": "what is in the room?"}
PROMPT_LETTERS = 400


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    settings = {"reset_seconds": 60, "call_seconds": 60}
    async with served_endpoint(versions.engine, settings, stop_token_ids=STOP_TOKENS) as served:
        yield served


def natural_end(rollout: Rollout) -> EpisodeEnd:
    """The end of an episode whose program ended well: a last turn that its own max_tokens cut is
    truncated.
    """
    assert rollout.episode is not None
    last = rollout.episode.turns[-1]
    token = int(rollout.sequences[last.sequence].token_ids[last.end - 1])
    return EpisodeEnd.DONE if token in (2, *STOP_TOKENS) else EpisodeEnd.TOKENS


async def test_the_history_that_a_client_sends_back_is_recognised(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        messages: list[Any] = [USER]
        for step in range(4):
            completion = await client.chat.completions.create(
                model=MODEL, messages=messages, tools=TOOLS, max_tokens=40
            )
            choice = completion.choices[0]
            assert choice.finish_reason in ("tool_calls", "length")
            assert choice.message.tool_calls[0].function.name == "look"
            messages += answer_calls(choice.message, f"door {step}")
            await versions.apply(10 + step)
        assert [one.id async for one in client.models.list()] == [MODEL, f"{MODEL}-untrained"]

    task = episode_task(1, 1, LengthBudget(max_tokens=300))
    sampler, rollout = await play_session(endpoint, task, program, 0.25)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert rollout.episode.end is natural_end(rollout)
    assert not rollout.episode.branches
    assert [turn.tool_calls for turn in rollout.episode.turns] == [1, 1, 1, 1]
    assert len(rollout.version_spans) >= 3
    assert sampler.verdict is not None
    assert sampler.verdict.reward == 0.25


async def test_the_message_of_a_stream_is_recognised(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        messages: list[Any] = [USER]
        for number in range(3):
            options: dict[str, Any] = {"max_tokens": 60, **({"tools": TOOLS} if number else {})}
            if number == 1:
                messages = [USER]
            content = ""
            calls: list[Any] = []
            sampled = 0
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=messages,
                stream=True,
                stream_options={"include_usage": True},
                **options,
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    content += choice.delta.content or ""
                    calls += choice.delta.tool_calls or []
                if chunk.usage is not None:
                    sampled = chunk.usage.completion_tokens
            turn = session.record.turns[-1]
            assert sampled == turn.end - turn.start
            _, tokens = session.record.turn_tokens(-1)
            assert content == endpoint.parts.renderer.parse([], tokens, ()).content.strip()
            sent: dict[str, Any] = {"role": "assistant", "content": content}
            if calls:
                sent["tool_calls"] = [call.model_dump(exclude={"index"}) for call in calls]
            messages += [
                sent,
                *({"role": "tool", "tool_call_id": call.id, "content": "a door"} for call in calls),
            ]

    task = episode_task(2, 1, LengthBudget(max_tokens=300))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 1, 1], (
        "other tools are another history"
    )


async def test_further_sequences_are_counted_and_a_sampled_turn_is_trained_once(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        async def ask(messages: list[Any]) -> Any:
            completion = await client.chat.completions.create(
                model=MODEL, messages=messages, max_tokens=20
            )
            return completion.choices[0].message

        first = await ask([USER])
        assert (await ask([USER, *answer_calls(first)])).tool_calls
        await versions.apply(20)
        await ask([USER, *answer_calls(first, "another door")])
        await ask([USER, {"role": "assistant", "content": "i was never sampled"}, USER])
        await ask([USER, *answer_calls(first), {"role": "assistant", "content": "nor was i"}, USER])
        both = [ask([{"role": "user", "content": f"sub agent {number}"}]) for number in range(2)]
        await asyncio.gather(*both)

    task = episode_task(3, 1, LengthBudget(max_tokens=300))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    sequences = [turn.sequence for turn in rollout.episode.turns]
    assert sequences[:5] == [0, 0, 1, 2, 3]
    assert sorted(sequences[5:]) == [4, 5], (
        "turns are in the order of their ends, which is open for two agents"
    )
    forked = rollout.episode.branches[0]
    whole = [*task.prompt_token_ids, *rollout.token_ids]
    first = rollout.episode.turns[0]
    sampled = len(task.prompt_token_ids) + first.end
    assert forked.prompt_token_ids[:sampled].tolist() == whole[:sampled], (
        "its prompt has the recorded tokens"
    )
    for reason, count in (("forked", 1), ("rewritten", 2), ("new", 2)):
        assert endpoint.count(episode_metrics.ENDPOINT_EXTRA_SEQUENCES, reason=reason) >= count


async def test_max_tokens_stop_and_the_budget(versions: Versions, endpoint: ServedEndpoint) -> None:
    import openai

    async def program(client: Any, session: HarnessSession) -> None:
        async def ask(**options: Any) -> Any:
            return (
                await client.chat.completions.create(model=MODEL, messages=[USER], **options)
            ).choices[0]

        short = await ask(max_completion_tokens=3, logprobs=True)
        assert short.finish_reason == "length"
        assert [one.logprob for one in short.logprobs.content] == pytest.approx(
            session.record.sequences[0].completion.logprobs
        )
        letters = "aeio"
        stopped = await ask(stop=list(letters))
        assert not set(letters) & set(stopped.message.content or "")
        _, tokens = session.record.turn_tokens(-1)
        # A stop is looked for in the text without special tokens, whose names have such letters:
        # `<pad>`.
        text = re.sub("<[a-z]+>", "", versions.engine.decode(tokens))
        assert (
            tokens[-1] in (2, *STOP_TOKENS)
            or text[-1] in letters
            or stopped.finish_reason == "length"
        )
        assert not set(letters) & set(text[:-1])
        assert len(session.record.last_answer()) == len(tokens) - (tokens[-1] in (2, *STOP_TOKENS))
        with pytest.raises(openai.BadRequestError, match="at most 4 texts"):
            await ask(stop=["a"] * 5)
        while (await ask()).finish_reason != "length":
            pass
        with pytest.raises(openai.BadRequestError, match="budget of tokens is used up"):
            await ask()

    task = episode_task(5, 1, LengthBudget(max_tokens=200), max_turns=64)
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert rollout.episode.end is EpisodeEnd.TOKENS
    assert rollout.truncated


async def test_requests_that_are_refused(versions: Versions, endpoint: ServedEndpoint) -> None:
    import openai

    async def program(client: Any, session: HarnessSession) -> None:
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"temperature": 0.3}, "temperature = 0.3: the run's own sampling"),
            ({"top_p": 0.5}, "top_p"),
            ({"seed": 1}, "seed"),
            ({"presence_penalty": 1}, "presence_penalty"),
            ({"logit_bias": {"5": 3}}, "logit_bias"),
            ({"response_format": {"type": "json_object"}}, "response_format"),
            ({"extra_body": {"typical_p": 0.3}}, "typical_p"),
            ({"n": 2}, "n = 2"),
            ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
            ({"max_tokens": 0}, "max_tokens"),
            (
                {
                    "messages": [
                        {
                            "role": "user",
                            "content": [{"type": "image_url", "image_url": {"url": "x"}}],
                        }
                    ]
                },
                "text",
            ),
            (
                {"messages": [USER, {"role": "assistant", "content": "x"}]},
                "the last one is the assistant's",
            ),
        ]
        for options, sentence in wrong:
            with pytest.raises(openai.BadRequestError, match=sentence):
                await client.chat.completions.create(
                    **{"model": MODEL, "messages": [USER], **options}
                )
        with pytest.raises(openai.NotFoundError, match="is not served here"):
            await client.chat.completions.create(model="gpt", messages=[USER])
        with pytest.raises(openai.NotFoundError, match="recorded from /v1/chat/completions"):
            await client.completions.create(model=MODEL, prompt="x")
        same = {
            "temperature": 1.0,
            "top_p": 1.0,
            "frequency_penalty": 0,
            "seed": None,
            "user": "me",
        }
        assert (
            await client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=2, **same)
        ).choices
        async with make_client(endpoint, session, api_key="guessed") as stranger:
            with pytest.raises(openai.AuthenticationError, match="wrong or missing token"):
                await stranger.chat.completions.create(model=MODEL, messages=[USER])
        async with httpx.AsyncClient(base_url=endpoint.sessions.url) as plain:
            answer = await plain.post(
                "/v1/chat/completions", json={"model": MODEL, "messages": [USER]}
            )
            assert answer.status_code == 401
            assert "a call without a session needs http.token" in answer.json()["error"]["message"]
            headers = {"authorization": f"Bearer {session.token}"}
            path = f"/rollcast/{session.id}/v1/chat/completions"
            large = await plain.post(path, content=b" " * (17 << 20), headers=headers)
            assert large.status_code == 413
            assert (await plain.post(path, content=b"{", headers=headers)).status_code == 400

    task = episode_task(6, 1, LengthBudget(max_tokens=60))
    _, rollout = await play_session(endpoint, task, program)
    assert rollout.episode is not None
    assert len(rollout.episode.turns) == 1
    assert endpoint.count(episode_metrics.ENDPOINT_REFUSED, code="sampling_of_run") == 8


async def test_an_update_during_the_prefill(versions: Versions, endpoint: ServedEndpoint) -> None:
    """KV of one prompt is of one version, or the record says where it changed: a plain replay
    decides.
    """
    long = {"role": "user", "content": "where is the door? " * (PROMPT_LETTERS // 19)}

    async def program(client: Any, session: HarnessSession) -> None:
        asking = asyncio.create_task(
            client.chat.completions.create(model=MODEL, max_tokens=30, messages=[long])
        )
        for step in range(30, 36):
            await versions.apply(step)
            await asyncio.sleep(0.02)
        message = (await asking).choices[0].message
        again = asyncio.create_task(
            client.chat.completions.create(
                model=MODEL, max_tokens=30, messages=[long, *answer_calls(message)]
            )
        )
        for step in range(36, 39):
            await versions.apply(step)
            await asyncio.sleep(0.02)
        await again

    task = episode_task(7, 1, LengthBudget(max_tokens=100))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.version_spans[0].version.step > 29


async def test_tokens_in_tokens_out(versions: Versions, endpoint: ServedEndpoint) -> None:

    async def program(client: Any, session: HarnessSession) -> None:
        headers = {"authorization": f"Bearer {session.token}"}
        async with httpx.AsyncClient(
            base_url=endpoint.sessions.url, headers=headers, timeout=60
        ) as plain:
            path = f"/rollcast/{session.id}/inference/v1/generate"
            tokens = list(range(3, 20))
            for _ in range(3):
                body = {
                    "token_ids": tokens,
                    "sampling_params": {"max_tokens": 9, "temperature": 1.0},
                }
                choice = (await plain.post(path, json=body)).json()["choices"][0]
                assert len(choice["logprobs"]["content"]) == len(choice["token_ids"])
                tokens = [*tokens, *choice["token_ids"], 8, 9]
            refused = await plain.post(
                path, json={"token_ids": tokens, "sampling_params": {"temperature": 0}}
            )
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "sampling_of_run"

    task = episode_task(8, 1, LengthBudget(max_tokens=100))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 0]


async def test_a_program_that_is_started(
    versions: Versions, endpoint: ServedEndpoint, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With its task in its environment; what a program that then hangs or crashes leaves is ended
    and begun again.
    """
    program = tmp_path_factory.mktemp("harness") / "agent.py"
    program.write_text(AGENT)
    settings = {
        "command": [sys.executable, str(program)],
        "call_seconds": 3,
        "sampling": "run",
        "restarts": 1,
    }
    async with served_endpoint(versions.engine, settings, stop_token_ids=STOP_TOKENS) as served:
        ends = {}
        for how in ("well", "long", "hangs", "crashes", "unread"):
            row = {"how": how, "notes": "." * (200_000 if how == "long" else 1)}
            task = dataclasses.replace(
                episode_task(9, 1, LengthBudget(max_tokens=380)), reference=json.dumps(row)
            )
            sampler = served.sampler(task)
            assert sampler.occupies_slot
            await asyncio.wait_for(sampler.run(), 120)
            await served.engine.observe()
            rollout = sampler.rollout()
            assert rollout.episode is not None
            ends[how] = (rollout.episode, rollout, sampler.verdict)
        episode, rollout, verdict = ends["well"]
        check_exact(versions, rollout, task)
        assert (episode.end, len(episode.turns), episode.restarts) == (natural_end(rollout), 2, 0)
        assert verdict is not None
        assert verdict.reward == 0.5
        assert ends["long"][0].end is natural_end(ends["long"][1])
        assert served.count(episode_metrics.ENDPOINT_REPLACED) >= 2
        for how, reason in (
            ("hangs", "sent no request for 3 seconds"),
            ("crashes", "ended with exit code 1: .*RuntimeError: no such door"),
            ("unread", "gave no reward"),
        ):
            episode, rollout, verdict = ends[how]
            assert episode.end is EpisodeEnd.FAILED
            assert re.search(reason, episode.reason), episode.reason
            assert verdict is not None
            assert verdict.status is GradingStatus.ERROR


AGENT = """
import json, os, sys, time, urllib.request

def post(url, body):
    headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)))

row = json.load(sys.stdin)
how = row["how"]
assert json.loads(os.environ.get("ROLLCAST_ROW", "null")) == (None if how == "long" else row)
messages = [{"role": "user", "content": "what is in the room?"}]
assert os.environ["ANTHROPIC_AUTH_TOKEN"] == os.environ["OPENAI_API_KEY"]
assert os.environ["ANTHROPIC_MODEL"] == os.environ["ROLLCAST_MODEL"]
title = {"model": os.environ["ANTHROPIC_DEFAULT_HAIKU_MODEL"], "messages": messages, "max_tokens": 3}
assert post(os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", title)["role"] == "assistant"
for _ in range(2):
    body = {"model": os.environ["ROLLCAST_MODEL"], "messages": messages, "max_tokens": 40, "temperature": 0.1}
    message = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)["choices"][0]["message"]
    if how == "hangs":
        time.sleep(600)
    if how == "crashes":
        raise RuntimeError("no such door")
    messages += [message, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "a door"}]
if how in ("well", "long"):
    post(os.environ["ROLLCAST_REWARD_URL"], {"reward": 0.5})
"""  # noqa: E501
