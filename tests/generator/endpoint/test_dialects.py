"""Responses and Anthropic's messages: the same record as of chat completions,
with a real engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from rollcast.generator.endpoint.dialects.response_items import (
    empty_message,
    empty_message_events,
    read_items,
)
from rollcast.generator.endpoint.remembered_chats import RememberedChats
from rollcast.generator.endpoint.session import HarnessSession
from rollcast.generator.vllm import protocol
from rollcast.rollouts.records import LengthBudget, PromptTask, Rollout
from rollcast.telemetry import episode_metrics
from testkit.generator.anthropic_client import AnthropicClient
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import (
    MODEL,
    ServedEndpoint,
    served_endpoint,
)
from testkit.generator.played_sessions import check_exact, play_session
from tests.generator.conftest import SharedEngine, Versions

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session")]

USER = {"role": "user", "content": "what is in the room?"}
RESPONSES_TOOL = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object"},
    "strict": False,
}
ANTHROPIC_TOOL = {"name": "look", "input_schema": {"type": "object"}}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def endpoint(roomy_engine: SharedEngine) -> AsyncIterator[ServedEndpoint]:
    versions = await roomy_engine.versions()
    settings = {"reset_seconds": 60, "call_seconds": 60, "sampling": "run"}
    async with served_endpoint(versions.engine, settings, stop_token_ids=(5, 17)) as served:
        yield served


def results(message: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """An assistant's message as a client sends it back, and the results of its tools."""
    uses = [block for block in message["content"] if block["type"] == "tool_use"]
    assert uses
    content = [
        {
            "type": "tool_result",
            "tool_use_id": use["id"],
            "content": [{"type": "text", "text": text}],
        }
        for use in uses
    ]
    return [
        {"role": "assistant", "content": message["content"]},
        {"role": "user", "content": content},
    ]


def check_one_sequence(
    versions: Versions, rollout: Rollout, task: PromptTask, num_turns: int
) -> None:
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert not rollout.episode.branches
    assert [turn.tool_calls for turn in rollout.episode.turns] == [1] * num_turns


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_chat_in_anthropics_form_is_one_sequence(
    is_streamed: bool, versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(_: Any, session: HarnessSession) -> None:
        client = AnthropicClient(endpoint, session)
        system = [{"type": "text", "text": "look around", "cache_control": {"type": "ephemeral"}}]
        messages: list[dict[str, Any]] = [USER]
        for step in range(3):
            body: dict[str, Any] = {
                "system": system,
                "messages": messages,
                "tools": [ANTHROPIC_TOOL],
            }
            count = (await client.count(**body)).json()["input_tokens"]
            if is_streamed:
                message, kinds = await client.stream(**body)
                assert kinds[0] == "message_start"
                assert kinds[-2:] == ["message_delta", "message_stop"]
            else:
                message = (await client.create(**body)).json()
            turn = session.record.turns[-1]
            assert message["role"] == "assistant"
            assert message["stop_reason"] in ("tool_use", "max_tokens")
            assert message["usage"]["output_tokens"] == turn.end - turn.start
            if step == 0:
                assert message["usage"]["input_tokens"] == count
            messages = [*messages, *results(message, f"door {step}")]
            await versions.apply(40 + step)
        await client.close()

    task = episode_task(21 + is_streamed, 1, LengthBudget(max_tokens=300))
    _, rollout = await play_session(endpoint, task, program)
    check_one_sequence(versions, rollout, task, 3)


@pytest.mark.parametrize("names_the_previous", [False, True])
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_chat_of_responses_is_one_sequence(
    is_streamed: bool, names_the_previous: bool, versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        items: list[Any] = [USER]
        previous: dict[str, str] = {}
        for step in range(3):
            options = {
                "model": MODEL,
                "tools": [RESPONSES_TOOL],
                "max_output_tokens": 40,
                "input": items,
                **previous,
            }
            if step == 2:
                del options["max_output_tokens"]
            if is_streamed:
                kinds = []
                async for event in await client.responses.create(**options, stream=True):
                    kinds.append(event.type)
                    assert event.sequence_number == len(kinds) - 1
                response = event.response
                assert kinds[:2] == ["response.created", "response.in_progress"]
            else:
                response = await client.responses.create(**options)
            turn = session.record.turns[-1]
            assert response.status in ("completed", "incomplete")
            assert response.usage.output_tokens == turn.end - turn.start
            calls = [item for item in response.output if item.type == "function_call"]
            assert [call.name for call in calls] == ["look"]
            answers = [
                {
                    "type": "function_call_output",
                    "call_id": calls[0].call_id,
                    "output": f"door {step}",
                }
            ]
            if names_the_previous:
                previous = {"previous_response_id": response.id}
                items = answers
            else:
                items = [
                    *items,
                    *(item.model_dump(exclude_none=True) for item in response.output),
                    *answers,
                ]
            await versions.apply(50 + step)

    task = episode_task(31 + 2 * is_streamed + names_the_previous, 1, LengthBudget(max_tokens=300))
    _, rollout = await play_session(endpoint, task, program)
    check_one_sequence(versions, rollout, task, 3)


async def test_custom_calls_in_the_models_own_form_are_one_sequence(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    """The client receives the input of a custom call, in which the model's form of it is lost."""

    async def program(client: Any, session: HarnessSession) -> None:
        items: list[Any] = [USER]
        for step in range(3):
            response = await client.responses.create(
                model=MODEL,
                tools=[{"type": "custom", "name": "look"}],
                max_output_tokens=40,
                input=items,
            )
            (call,) = (item for item in response.output if item.type == "custom_tool_call")
            answer = {
                "type": "custom_tool_call_output",
                "call_id": call.call_id,
                "output": f"door {step}",
            }
            items += [*(item.model_dump(exclude_none=True) for item in response.output), answer]
        edited = [
            {**item, "input": "other"} if item.get("type") == "custom_tool_call" else item
            for item in items
        ]
        await client.responses.create(
            model=MODEL,
            tools=[{"type": "custom", "name": "look"}],
            max_output_tokens=4,
            input=edited,
        )

    task = episode_task(35, 1, LengthBudget(max_tokens=400))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 0, 1], (
        "another input is another history"
    )


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_message_names_the_stop_sequence_that_ended_it(
    is_streamed: bool, versions: Versions
) -> None:
    settings = {"reset_seconds": 60, "call_seconds": 60, "sampling": "run"}
    task = episode_task(36 + is_streamed, 1, LengthBudget(max_tokens=200))

    async def program(client: Any, session: HarnessSession) -> None:
        anthropic = AnthropicClient(without_calls, session)
        # The model has few letters, which depend on the weights that tests before it applied.
        completion = await client.chat.completions.create(
            model=MODEL, messages=[USER], max_tokens=60
        )
        assert completion.choices[0].stop_reason is None
        text = session.record.decode(session.record.turn_tokens(0)[1])
        letters = [letter for letter, _ in Counter(text).most_common(4)]
        body = {"messages": [USER], "stop_sequences": letters}
        if is_streamed:
            message, _ = await anthropic.stream(**body)
        else:
            message = (await anthropic.create(**body)).json()
        await anthropic.close()
        assert message["stop_reason"] == "stop_sequence"
        assert message["stop_sequence"] in letters
        text = "".join(block.get("text", "") for block in message["content"])
        assert not set(text) & set(letters)

    async with served_endpoint(versions.engine, settings, lambda tokens: 0) as without_calls:
        _, rollout = await play_session(without_calls, task, program)
    check_exact(versions, rollout, task)


async def test_what_clients_ask_for_is_replaced_by_the_runs_sampling_and_counted(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        chat = {"model": MODEL, "messages": [USER], "max_tokens": 4}
        tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
        for options in (
            {"tools": [tool], "tool_choice": "required"},
            {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "look"}}},
            {"tools": [tool], "parallel_tool_calls": False},
            {"response_format": {"type": "json_object"}, "temperature": 0.0},
        ):
            assert (await client.chat.completions.create(**chat, **options)).choices
        assert (
            await client.responses.create(
                model=MODEL,
                input="hello",
                max_output_tokens=4,
                temperature=0.2,
                reasoning={"effort": "low"},
                text={"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
                tools=[RESPONSES_TOOL],
                tool_choice="required",
                store=False,
            )
        ).output
        anthropic = AnthropicClient(endpoint, session)
        thinking = {"type": "enabled", "budget_tokens": 1_024}
        choice = {"type": "any", "disable_parallel_tool_use": True}
        answer = await anthropic.create(
            messages=[USER],
            tools=[ANTHROPIC_TOOL],
            tool_choice=choice,
            thinking=thinking,
            max_tokens=2_000,
        )
        assert answer.status_code == 200, answer.text
        await anthropic.close()

    before = endpoint.count(episode_metrics.ENDPOINT_REPLACED)
    task = episode_task(41, 1, LengthBudget(max_tokens=200))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    # One each for the first three chats, two for the fourth; four of the response; three of the
    # message.
    assert endpoint.count(episode_metrics.ENDPOINT_REPLACED) - before == 12


async def test_refusals_have_the_form_that_each_client_reads(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    import openai

    async def program(client: Any, session: HarnessSession) -> None:
        with pytest.raises(
            openai.NotFoundError, match="this session has no such response"
        ) as missing:
            await client.responses.create(model=MODEL, input="x", previous_response_id="resp_1")
        assert missing.value.code == "previous_response_not_found"
        with pytest.raises(openai.BadRequestError, match="background"):
            await client.responses.create(model=MODEL, input="x", background=True)
        with pytest.raises(openai.BadRequestError, match="input"):
            await client.responses.create(model=MODEL, input=[])
        with pytest.raises(openai.BadRequestError, match=r"input.0: is not an object"):
            await client.responses.create(model=MODEL, input=[1])
        with pytest.raises(
            openai.BadRequestError, match=r"input.0.type = 'other': no such item is served"
        ):
            await client.responses.create(model=MODEL, input=[{"type": "other"}] * 10_000)
        with pytest.raises(openai.BadRequestError, match=r"input.0.arguments: Field required"):
            await client.responses.create(
                model=MODEL, input=[{"type": "function_call", "name": "look"}]
            )
        with pytest.raises(openai.NotFoundError, match="is not served here"):
            await client.responses.create(model="gpt", input="x")
        with pytest.raises(openai.NotFoundError, match="/v1/embeddings is not served"):
            await client.embeddings.create(model=MODEL, input="x")
        anthropic = AnthropicClient(endpoint, session)
        image = {"type": "image", "source": {"type": "url", "url": "http://x"}}
        for body, status, kind, sentence in (
            ({"messages": []}, 400, "invalid_request_error", "give a list of at least one message"),
            ({"messages": [USER], "max_tokens": -1}, 400, "invalid_request_error", "max_tokens"),
            ({"messages": [USER], "model": "claude"}, 404, "not_found_error", "is not served here"),
            (
                {"messages": [{"role": "user", "content": [image]}]},
                400,
                "invalid_request_error",
                "only content that is",
            ),
            (
                {"messages": [USER, {"role": "assistant", "content": "{"}]},
                400,
                "invalid_request_error",
                "assistant's",
            ),
        ):
            answer = await anthropic.create(**body)
            assert (answer.status_code, answer.json()["type"]) == (status, "error"), answer.text
            assert answer.json()["error"]["type"] == kind
            assert sentence in answer.json()["error"]["message"]
        stranger = AnthropicClient(endpoint, session, **{"x-api-key": "guessed"})
        answer = await stranger.create(messages=[USER])
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
        assert (await anthropic.create(messages=[USER], max_tokens=2)).status_code == 200
        await anthropic.close()
        await stranger.close()

    task = episode_task(42, 1, LengthBudget(max_tokens=60))
    _, rollout = await play_session(endpoint, task, program)
    assert rollout.episode is not None
    assert len(rollout.episode.turns) == 1


async def test_tools_and_texts_of_each_form_reach_the_model(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    """A grammar of a custom tool is replaced, tools of a host are left out, texts of several parts
    are joined.
    """
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    custom = {"type": "custom", "name": "apply_patch", "description": "a patch", "format": grammar}
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    texts = [{"type": "text", "text": "what is "}, {"type": "text", "text": "in the room?"}]

    async def program(client: Any, session: HarnessSession) -> None:
        anthropic = AnthropicClient(endpoint, session)
        whole = (await anthropic.count(messages=[USER])).json()
        assert (
            await anthropic.count(messages=[{"role": "user", "content": texts}])
        ).json() == whole
        assert (await anthropic.count(messages=[USER], tools=[hosted])).json() == whole
        assert (
            await anthropic.count(messages=[USER], tools=[], tool_choice={"type": "auto"})
        ).json() == whole
        answer = await anthropic.create(
            messages=[{"role": "user", "content": texts}], tools=[hosted], max_tokens=2
        )
        assert answer.status_code == 200, answer.text
        response = await client.responses.create(
            model=MODEL, input="a", tools=[custom], max_output_tokens=8
        )
        assert response.output
        await anthropic.close()

    before = endpoint.count(episode_metrics.ENDPOINT_REPLACED)
    task = episode_task(51, 1, LengthBudget(max_tokens=60))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert endpoint.count(episode_metrics.ENDPOINT_REPLACED) - before == 1


async def test_a_response_continues_with_the_system_messages_of_its_input_and_other_instructions(
    versions: Versions, endpoint: ServedEndpoint
) -> None:
    async def program(client: Any, session: HarnessSession) -> None:
        first = await client.responses.create(
            model=MODEL,
            input=[{"role": "system", "content": "be brief"}, USER],
            extra_body={"stop": ["a", "e"]},
            max_output_tokens=20,
        )
        assert not {"a", "e"} & set(first.output_text)
        await client.responses.create(
            model=MODEL, input="go on", previous_response_id=first.id, max_output_tokens=4
        )
        other = await client.responses.create(
            model=MODEL,
            instructions="be long",
            input="go on",
            previous_response_id=first.id,
            max_output_tokens=4,
        )
        stored = session.responses.get(other.id)
        assert stored is not None
        assert [message["role"] for message in stored] == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
        ]
        assert stored[0]["content"] == "be brief", "instructions are of one request"

    task = episode_task(52, 1, LengthBudget(max_tokens=80))
    _, rollout = await play_session(endpoint, task, program)
    check_exact(versions, rollout, task)
    assert rollout.episode is not None
    assert [turn.sequence for turn in rollout.episode.turns] == [0, 0, 1], (
        "other instructions are another history"
    )


async def test_an_answer_of_reasoning_alone_is_an_empty_message() -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    text = {"type": "output_text", "text": "a", "annotations": []}
    answer = {"type": "message", "role": "assistant", "content": [text, text]}
    assert list(read_items([USER, reasoning, USER], {})) == [
        USER,
        {"role": "assistant", "content": ""},
        USER,
    ]
    assert list(read_items([reasoning], {})) == [{"role": "assistant", "content": ""}]
    assert list(read_items([reasoning, answer], {})) == [{**answer, "content": "aa"}]
    assert empty_message().content[0].text == ""
    processor = protocol.responses_events.SimpleStreamingEventProcessor(tools=[])
    kinds = [event.type for event in empty_message_events(processor)]
    kinds += [event.type for event in processor.close_current()]
    assert kinds[0] == "response.output_item.added"
    assert kinds[-1] == "response.output_item.done"
    assert [item.type for item in processor.output_items] == ["message"]


async def test_the_newest_chats_are_remembered_within_bounds() -> None:
    chats = RememberedChats()
    for number in range(100):
        chats.add(str(number), [{"role": "user", "content": "a"}])
    assert chats.get("35") is None
    assert chats.get("36") is not None
    large = [{"role": "user", "content": "a" * 5_000_000}]
    for name in ("x", "y"):
        chats.add(name, large)
    assert chats.get("99") is None
    assert chats.get("x") is None
    assert chats.get("y") == large
