"""Inputs of the fuzzer are the same at every call, mostly valid, and judged by what they cost."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
import yaml

from rollcast.wire import rollout_pb2
from testkit.fuzz.message_mutation import change_message
from testkit.fuzz.mutation import change_bytes, change_json, change_text, change_yaml
from testkit.fuzz.outcome import try_input
from testkit.fuzz.target import Mutator, Target, is_json, is_message

VALUE = {"a": [1, {"b": "text"}, None], "c": 2.5, "d": {"e": True}}
TEXT = json.dumps(VALUE).encode()
MESSAGE = rollout_pb2.PromptTask(sequence=1, dataset="sums", prompt_token_ids=b"\0\0\0\1")


def make_target(read: Any, mutate: Mutator = change_json, **settings: Any) -> Target:
    return Target("planted", lambda: [TEXT], mutate, is_json, read, (ValueError,), (), **settings)


def is_yaml(content: bytes) -> bool:
    try:
        yaml.load(content, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return False
    return True


@pytest.mark.parametrize(
    ("mutate", "seed", "passes", "least_share"),
    [
        (change_json, TEXT, is_json, 0.9),
        (change_yaml, yaml.safe_dump(VALUE).encode(), is_yaml, 0.6),
        (
            change_message(rollout_pb2.PromptTask),
            MESSAGE.SerializeToString(),
            is_message(rollout_pb2.PromptTask),
            0.9,
        ),
        (change_text, b"step 1 acc 0.5\nstep 2 acc 0.6\n", lambda _: True, 1.0),
        (change_bytes, b"", lambda _: True, 1.0),
    ],
)
def test_most_changed_inputs_pass_the_first_check(
    mutate: Mutator, seed: bytes, passes: Any, least_share: float
) -> None:
    changed = [mutate(seed, [seed], Random(number)) for number in range(200)]
    assert sum(map(passes, changed)) >= least_share * len(changed)
    assert len(set(changed)) > 50
    assert changed == [mutate(seed, [seed], Random(number)) for number in range(200)]


def test_an_input_is_that_of_its_number() -> None:
    target = make_target(len)
    first, second = ([target.make_mutant([TEXT], 7, n) for n in range(50)] for _ in range(2))
    assert first == second
    assert first != [target.make_mutant([TEXT], 8, n) for n in range(50)]


def raises_another_error(_: bytes) -> None:
    raise KeyError


def spends_time(_: bytes) -> None:
    sum(range(3_000_000))


def grows(_: bytes) -> None:
    bytearray(b"\1") * (400 << 20)


def refuses(_: bytes) -> None:
    raise ValueError


@pytest.mark.parametrize(
    ("read", "seconds", "name"),
    [
        (raises_another_error, 1.0, "KeyError test_mutation.py:raises_another_error"),
        (spends_time, 0.001, "slow"),
        (grows, 60.0, "memory"),
        (refuses, 1.0, None),
        (len, 1.0, None),
    ],
)
def test_a_finding_is_another_error_too_much_time_or_too_much_memory(
    read: Any, seconds: float, name: str | None
) -> None:
    finding = try_input(make_target(read, seconds=seconds), TEXT)
    assert (finding.name if finding else None) == name
