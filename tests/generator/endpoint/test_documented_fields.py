"""The table of docs/episodes.md of what a request may ask for, row by row, against the check of a
request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rollcast.generator.endpoint.chat_request import ChatRequest
from rollcast.generator.endpoint.protocol import read_request
from rollcast.generator.endpoint.refusals import RefusedRequestError
from rollcast.rollouts.records import Sampling

pytestmark = pytest.mark.timeout(600)
"""The first test to import vLLM waits for it, on a busy machine for minutes."""
PAGE = Path(__file__).parents[3] / "docs" / "episodes.md"
HEADING = "### What a request may ask for"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "look"}}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "go on"}], "tools": [TOOL]}
RUN = Sampling(temperature=0.7, top_p=0.9, top_k=20)
IMAGE = {"type": "image_url", "image_url": {"url": "http://image"}}
FIELDS: dict[str, list[dict[str, Any]]] = {
    "`max_tokens`, `max_completion_tokens`, `stop`": [
        {"max_tokens": 7}, {"max_completion_tokens": 7}, {"stop": ["end"]},
    ],
    "`temperature`, `top_p`, `top_k` of the run, or none": [
        {"temperature": 0.7}, {"top_p": 0.9}, {"top_k": 20}, {"temperature": None},
    ],
    (
        "other ones; `response_format`, grammars, thinking budgets, penalties, `seed` and other "
        "settings of sampling"
    ): [
        {"temperature": 0.0}, {"top_p": 1.0}, {"top_k": -1}, {"seed": 1}, {"logit_bias": {"5": 9}},
        {"response_format": {"type": "json_object"}}, {"structured_outputs": {"regex": "a"}},
        {"reasoning_effort": "low"}, {"thinking_token_budget": 9}, {"frequency_penalty": 0.5},
        {"presence_penalty": 0.5}, {"repetition_penalty": 1.1}, {"min_p": 0.1}, {"unheard_of": 1},
    ],
    "`tool_choice` `required` or named, `parallel_tool_calls: false`": [
        {"tool_choice": "required"}, {"tool_choice": NAMED}, {"parallel_tool_calls": False},
    ],
    "`tool_choice: none`": [{"tool_choice": "none"}],
    "`user`, `metadata`, `store` and others that sample nothing": [
        {"user": "a"}, {"metadata": {"a": "b"}}, {"store": True}, {"service_tier": "auto"},
        {"prompt_cache_key": "a"}, {"safety_identifier": "a"}, {"parallel_tool_calls": True},
        {"seed": None}, {"frequency_penalty": 0.0}, {"response_format": {"type": "text"}},
    ],
    "`n` above 1, `functions`, content that is not text": [
        {"n": 2}, {"functions": [{"name": "look"}]},
        {"messages": [{"role": "user", "content": [IMAGE]}]},
    ],
}  # fmt: skip
"""For each row of the table requests that it speaks of."""


def rows() -> dict[str, tuple[str, str]]:
    """Both outcomes by the fields."""
    _, _, rest = PAGE.read_text().partition(HEADING)
    lines = rest.partition("\n\n")[2].partition("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert cells[0][0] == "field"
    return {fields: (refuse, run) for fields, refuse, run in cells[2:]}


def outcome(fields: dict[str, Any], *, replaces: bool) -> str:
    plain = read_request(CHAT, "tiny", RUN, replaces=False, is_retry=None)
    try:
        request = read_request({**CHAT, **fields}, "tiny", RUN, replaces=replaces, is_retry=None)
    except RefusedRequestError:
        return "refused"
    if request.replaced_settings:
        assert request.replaced_settings == tuple(fields)
        return "replaced"
    if not request.tools:
        return "without tools"
    return "ignored" if request == plain else _used(request, fields)


def _used(request: ChatRequest, fields: dict[str, Any]) -> str:
    used = (request.max_tokens, request.stop)
    (value,) = fields.values()
    expected = (value, ()) if isinstance(value, int) else (None, tuple(value))
    return "used" if used == expected else "other"


MEANINGS = {
    "used": ("used", "ignored"),
    "refused": ("refused",),
    "the run's sampling is used": ("replaced",),
    "free sampling is used": ("replaced",),
    "tools are left out of the prompt": ("without tools",),
    "the same": ("without tools",),
    "ignored": ("ignored",),
}
"""What may be seen of a request, by the words of the table. Sampling of the run is "used" and
changes nothing."""


def test_each_row_is_tried() -> None:
    assert list(rows()) == list(FIELDS)


@pytest.mark.parametrize("row", FIELDS)
def test_requests_are_treated_as_the_table_says(row: str) -> None:
    refuse, run = rows()[row]
    for fields in FIELDS[row]:
        assert outcome(fields, replaces=False) in MEANINGS[refuse], fields
        assert outcome(fields, replaces=True) in MEANINGS[run], fields
