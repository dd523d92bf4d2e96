"""A tool's schema must not stop the generator's event loop, whatever it and the model's arguments
are.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from rollcast.chat.calls import Toolbox
from rollcast.chat.schema_check import MAX_STEPS, find_misfit

re2 = pytest.importorskip("re2", reason="google-re2 is not installed")
MAX_SECONDS = 5.0
"""Of processor time, on a busy machine. Each of these took minutes, or for ever, or needs a
thousandth of it."""


def texts(**keywords: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"to": {"type": "string", **keywords}}}


MAIL = r"^([a-zA-Z0-9]+[._-]?)+@example\.com$"
DOUBLED = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
NESTED: dict[str, Any] = {}
for _ in range(50):
    NESTED = {"a": NESTED}

SLOW: dict[str, tuple[Any, dict[str, Any]]] = {
    "a pattern of groups": (texts(pattern=MAIL), {"to": "a" * 60 + "!"}),
    "of stars in stars": (texts(pattern="^(a*)*$"), {"to": "a" * 100_000 + "!"}),
    "of alternatives": (texts(pattern="^(a|aa)+$"), {"to": "a" * 100_000 + "!"}),
    "of alternatives that overlap": (texts(pattern="^(a|a)*$"), {"to": "a" * 10_000 + "!"}),
    "of dots": (texts(pattern="(.*)*x"), {"to": "a" * 100_000}),
    "of many repetitions": (texts(pattern="((a{0,30}){0,30})b"), {"to": "a" * 128_000}),
    "of a wide repetition": (texts(pattern=r"[\s\S]{0,1000}b"), {"to": "a" * 128_000}),
    "that looks ahead": (texts(pattern=r"^(?=(a+)+$)b"), {"to": "a" * 60 + "!"}),
    "that refers back": (texts(pattern=r"^(a+)+\1$"), {"to": "a" * 60 + "!"}),
    "of a megabyte": (texts(pattern="(a+)+" * 200_000), {"to": "a" * 60 + "!"}),
    "names of properties": (
        {"patternProperties": {"^(a+)+$": {"type": "integer"}}},
        {"a" * 60 + "!": 1},
    ),
    "names that are no others": (
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False},
        {"a" * 60 + "!": 1},
    ),
    "names that are not evaluated": (
        {"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False},
        {"a" * 60 + "!": 1},
    ),
    "a pattern of another dialect": (
        {
            "properties": {
                "to": {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "^(a+)+$"}
            }
        },
        {"to": "a" * 60 + "!"},
    ),
    "a pattern of another dialect, by a reference": (
        {
            "$defs": {
                "p": {
                    "$id": "urn:p",
                    "$schema": "http://json-schema.org/draft-04/schema#",
                    "pattern": "^(a|aa)+$",
                }
            },
            "properties": {"to": {"$ref": "#/$defs/p"}},
        },
        {"to": "a" * 60 + "!"},
    ),
    "names by a pattern": ({"propertyNames": {"pattern": "^(a+)+$"}}, {"a" * 60 + "!": 1}),
    "a format": (texts(format="regex"), {"to": "(a+)+" * 1_000}),
    "a format of addresses": (texts(format="email"), {"to": "a" * 100_000 + "!"}),
    "references that double": (DOUBLED, NESTED),
    "many allowed values": (
        {"properties": {"to": {"type": "array", "items": {"enum": list(range(50_000))}}}},
        {"to": [-1.5] * 9_000},
    ),
    "many alternatives": (
        {
            "properties": {
                "to": {"type": "array", "items": {"anyOf": [{"const": n} for n in range(2_000)]}}
            }
        },
        {"to": ["x"] * 9_000},
    ),
    "items that repeat": (
        {"properties": {"to": {"type": "array", "uniqueItems": True}}},
        {"to": [[n] for n in range(9_000)]},
    ),
}
NUMBERS = list(range(9_000))
NAMES = {str(number): number for number in range(9_000)}


def to_any(*schemas: Any, **definitions: Any) -> dict[str, Any]:
    return {"$defs": definitions, "properties": {"to": {"anyOf": list(schemas)}}}


def referred(count: int, definition: Any) -> dict[str, Any]:
    return to_any(*[{"$ref": "#/$defs/d"}] * count, d=definition)


HALVES = [{"properties": {"a": {"$ref": "#"}}, "required": ["b"]}] * 2
LARGE: dict[str, tuple[Any, dict[str, Any]]] = {
    "alternatives that double": ({"anyOf": HALVES}, NESTED),
    "one of two that double": ({"oneOf": HALVES}, NESTED),
    "messages that quote a list": (to_any(*[{"type": "string"}] * 30_000), {"to": NUMBERS}),
    "messages that quote a text": (referred(30_000, {"type": "integer"}), {"to": "x" * 1_000_000}),
    "messages of false": (to_any(*[False] * 30_000), {"to": NUMBERS}),
    "messages that quote an allowed text": (
        referred(30_000, {"enum": ["x" * 1_000_000]}),
        {"to": "x"},
    ),
    "a list compared with a list": (
        referred(30_000, {"const": [*NUMBERS, -1]}),
        {"to": [*NUMBERS, -2]},
    ),
    "an object compared with an object": (
        referred(30_000, {"const": NAMES | {"1": 0}}),
        {"to": NAMES},
    ),
    "a long text compared with a text": (
        referred(30_000, {"const": "x" * 1_000_000 + "y"}),
        {"to": "x" * 1_000_001},
    ),
    "many allowed numbers in alternatives": (
        referred(3_000, {"enum": list(range(50_000))}),
        {"to": 1.5},
    ),
    "items without a keyword": (
        to_any(*[{"items": {}, "minItems": 99_999}] * 3_000),
        {"to": NUMBERS},
    ),
    "keywords that are none": (
        {
            "$defs": {"d": {f"x{n}": 1 for n in range(20_000)}},
            "properties": {"to": {"items": {"$ref": "#/$defs/d"}}},
        },
        {"to": NUMBERS},
    ),
    "references by name": (
        {
            "$defs": {str(n): {} for n in range(20_000)} | {"d": {"$anchor": "d"}},
            "properties": {"to": {"items": {"$ref": "#d"}}},
        },
        {"to": NUMBERS},
    ),
    "references by address": (
        {
            "$defs": {str(n): {} for n in range(20_000)} | {"d": {"$id": "urn:d"}},
            "properties": {"to": {"items": {"$ref": "urn:d"}}},
        },
        {"to": NUMBERS},
    ),
    "long items that repeat": (
        to_any(*[{"uniqueItems": True, "minItems": 99_999}] * 3_000),
        {"to": [f"{'x' * 100_000}{n}" for n in range(90)]},
    ),
    "many names that are not allowed": (
        to_any(*[{"additionalProperties": False}] * 3_000),
        {"to": NAMES},
    ),
}
SLOW |= LARGE


@pytest.mark.parametrize("what", SLOW)
def test_no_schema_takes_long(what: str) -> None:
    schema, arguments = SLOW[what]
    tool = {
        "type": "function",
        "function": {"name": "mail", "description": "d", "parameters": schema},
    }
    began = time.process_time()
    call = Toolbox([tool]).call("mail", arguments, "")
    assert time.process_time() - began < MAX_SECONDS
    assert call.name == "mail"


FITS: list[tuple[Any, dict[str, Any], bool]] = [
    (texts(pattern=MAIL), {"to": "a.b@example.com"}, True),
    (texts(pattern=MAIL), {"to": "a.b@example.org"}, False),
    (texts(pattern="b"), {"to": "abc"}, True),
    (texts(pattern=r"^\d{4}-\d{2}$"), {"to": "2001-02"}, True),
    (texts(pattern=r"^\d{4}-\d{2}$"), {"to": "2001-2"}, False),
    (texts(pattern="^é+$"), {"to": "éé"}, True),
    (texts(pattern=r"^\w+$"), {"to": "é"}, True),
    (texts(pattern=r"^\w+$"), {"to": "!"}, False),
    (texts(pattern="^.$"), {"to": "😀"}, True),
    (texts(pattern="(?=x)y"), {"to": "no"}, True),
    (texts(pattern="("), {"to": "no"}, True),
    (texts(pattern=3), {"to": "no"}, True),
    ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": 1, "b": "x"}, True),
    ({"patternProperties": {"^n_": {"type": "integer"}}}, {"n_a": "x"}, False),
    ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"n_a": 1}, True),
    ({"patternProperties": {"^n_": {}}, "additionalProperties": False}, {"n_a": 1, "b": 1}, False),
    (
        {"patternProperties": {"^n_": {}}, "additionalProperties": {"type": "string"}},
        {"n_a": 1, "b": 1},
        False,
    ),
    ({"patternProperties": {"(?=n)": {}}, "additionalProperties": False}, {"b": 1}, True),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"a": 1}, True),
    ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}, False),
    ({"propertyNames": {"pattern": "^[a-z]+$"}}, {"B": 1}, False),
    ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, 1.0]}, False),
    ({"properties": {"a": {"uniqueItems": True}}}, {"a": [[{"b": 1}], [{"b": 1.0}]]}, False),
    ({"properties": {"a": {"uniqueItems": True}}}, {"a": [0.0, -0.0]}, False),
    (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [1, True, "1", [1], 1.5, {"b": True}, {"b": 1}]},
        True,
    ),
    ({"properties": {"a": {"enum": [1]}}}, {"a": 1.0}, True),
    ({"properties": {"a": {"enum": [1]}}}, {"a": True}, False),
    ({"type": "object", "required": ["a"]}, {}, False),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "required": ["a"]}, {}, False),
    (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"pattern": "^x"}},
        },
        {"a": "y"},
        False,
    ),
]


@pytest.mark.parametrize(("schema", "arguments", "fits"), FITS)
def test_patterns_mean_what_they_say(schema: Any, arguments: dict[str, Any], fits: bool) -> None:
    assert (find_misfit(arguments, schema) == "") is fits


def test_the_largest_ordinary_call_is_within_the_steps() -> None:
    schema = {
        "type": "object",
        "properties": {
            "rows": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}}
        },
    }
    assert find_misfit({"rows": [1] * 9_000}, schema) == ""
    assert "12" in find_misfit({"rows": [1] * 9_000 + [12]}, schema)
    assert MAX_STEPS > 4 * 9_000
