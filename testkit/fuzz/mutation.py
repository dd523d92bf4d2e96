"""Valid inputs changed: bytes, lines of text, and values of JSON and YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

import yaml

PIECES = (
    b"{", b"[", b"}", b"]", b'"', b"\\", b"\n", b"\r", b"\x00", b"\xff", b"\xef\xbb\xbf", b"1e999",
    b"-1", b"9" * 400, b"NaN", b"null", b": ", b"|", b",", b"\t", b"\xed\xa0\x80", b"%", b"{{",
    b"{%", "\u2028".encode(), "\u0661".encode(), "\U0001f600".encode(), b"\\ud800", b"  ", b"../",
    b"#", b"- ",
)  # fmt: skip
NUMBERS = (b"0", b"-1", b"1e308", b"1e-400", b"9" * 19, b"9" * 30, b"nan", b"-inf", b"1_0", b"0x10")
SCALARS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 10**30, 0.5, -0.0, 1e308, float("inf"),
    float("nan"), "", " ", "0", "-1", "1e999", "nan", "true", "null", "\x00", "\u2028",
    "\U0001f600", "\u0661", "a\nb", "../..", "{prompt}", "{", "[", "%s", "\ud800", [], {}, [[]],
    [None], {"": None}, {"a": {"a": 1}}, ["x", 1],
)  # fmt: skip
RAW = {
    "@raw0@": "1e999",
    "@raw1@": "9" * 5_000,
    "@raw2@": "-1e999",
    "@raw3@": "1" + "0" * 400,
    "@raw4@": "[" * 3_000 + "]" * 3_000,
    "@raw5@": '{"a":' * 3_000 + "1" + "}" * 3_000,
}
"""JSON that no Python value is written as."""
_DIGITS = re.compile(rb"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
_WORDS = re.compile(rb"[\w./-]+")


def change_bytes(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    changed = bytearray(content or b"0")
    at = chance.randrange(len(changed))
    length = chance.choice((1, 2, 4, 8, chance.randrange(1, 200)))
    match chance.randrange(8):
        case 0:
            changed[at] ^= 1 << chance.randrange(8)
        case 1:
            changed[at] = chance.randrange(256)
        case 2:
            del changed[at : at + length]
        case 3:
            changed[at:at] = changed[at : at + length] * chance.choice((1, 2, 50))
        case 4:
            changed[at:at] = chance.choice(PIECES)
        case 5:
            width = chance.choice((1, 2, 4, 8))
            number = chance.choice((0, 1, 0x7F, 0x80, 0xFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63))
            order = "little" if chance.randrange(2) else "big"
            changed[at : at + width] = (number % 256**width).to_bytes(width, order)
        case 6:
            other = chance.choice(pool)
            changed[at:] = other[chance.randrange(len(other) + 1) :]
        case _:
            del changed[at:]
    return bytes(changed)


def change_text(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """Lines, words and numbers, and now and then bytes."""
    lines = content.splitlines(keepends=True) or [b"\n"]
    at = chance.randrange(len(lines))
    match chance.randrange(9):
        case 0:
            del lines[at]
        case 1:
            lines[at:at] = [lines[at]] * (5_000 if _is_rare(chance) else chance.choice((1, 2, 30)))
        case 2:
            other = chance.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at] = _replace_match(_DIGITS, lines[at], chance.choice(NUMBERS), chance)
        case 4:
            lines[at] = _replace_match(_DIGITS, lines[at], chance.choice(PIECES), chance)
        case 5:
            words = _WORDS.findall(content) or [b""]
            lines[at] = _replace_match(_WORDS, lines[at], chance.choice(words), chance)
        case 6:
            lines[at] = _replace_match(_WORDS, lines[at], chance.choice(PIECES), chance)
        case 7:
            lines[at:at] = chance.choice(pool).splitlines(keepends=True)[: chance.randrange(1, 20)]
        case _:
            return change_bytes(content, pool, chance)
    return b"".join(lines)


def _replace_match(
    pattern: re.Pattern[bytes], line: bytes, replacement: bytes, chance: Random
) -> bytes:
    found = list(pattern.finditer(line))
    if not found:
        return replacement + line
    start, end = chance.choice(found).span()
    return line[:start] + replacement + line[end:]


def change_value(value: Any, chance: Random) -> Any:
    """The value with one of its parts changed. May change the value itself."""
    holders: list[tuple[Any, Any]] = []
    waiting = [value] if isinstance(value, dict | list) else []
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            holders.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
        if len(holders) > 3_000:
            break
    if not holders:
        return chance.choice(SCALARS)
    holder, key = chance.choice(holders)
    match chance.randrange(12):
        case 0 | 1 | 2:
            holder[key] = chance.choice(SCALARS)
        case 3:
            holder[key] = chance.choice(list(RAW))
        case 4 | 5:
            del holder[key]
        case 6:
            other_holder, other_key = chance.choice(holders)
            holder[key] = json.loads(json.dumps(other_holder[other_key]))
        case 7:
            _add(holder, key, holder[key], chance)
        case 8:
            holder[key] = [holder[key]] if chance.randrange(2) else {"a": holder[key]}
        case 9:
            _enlarge(holder, key, chance)
        case 10:
            holder[key] = str(holder[key]) if not isinstance(holder[key], str) else 7
        case _:
            if isinstance(holder[key], str) and holder[key]:
                text = holder[key]
                at = chance.randrange(len(text))
                piece = chance.choice(PIECES).decode("utf-8", "replace")
                holder[key] = text[:at] + piece + text[at + chance.randrange(3) :]
            else:
                holder[key] = chance.choice(SCALARS)
    return value


def _add(holder: Any, key: Any, item: Any, chance: Random) -> None:
    if isinstance(holder, list):
        holder[key:key] = [item] * chance.choice((1, 1, 2, 100))
    else:
        holder[chance.choice((f"{key}s", str(key).upper(), "", "\u0661", "a.b", "x" * 300))] = item


def _is_rare(chance: Random) -> bool:
    """Large values are rare, because they would take most of the time."""
    return chance.randrange(100) == 0


def _enlarge(holder: Any, key: Any, chance: Random) -> None:
    """Deep, long or wide."""
    size = 100_000 if _is_rare(chance) else chance.choice((10, 10, 100, 100, 1_000))
    match chance.randrange(5):
        case 0:
            item: Any = 1
            for _ in range(min(size, 400)):
                item = [item] if chance.randrange(2) else {"a": item}
            holder[key] = item
        case 1:
            holder[key] = chance.choice(("x", "9", "(", "\\", "\u0661", "a ", "\n", "[")) * size
        case 2:
            holder[key] = [holder[key] if size <= 100 or _is_rare(chance) else 1] * size
        case 3:
            holder[key] = {f"k{number}": number for number in range(size)}
        case _:
            holder[key] = int("9" * min(size, 4_000))


def change_json(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """Mostly a value of it; else its text."""
    with suppress(ValueError, RecursionError):
        if chance.randrange(20):
            return write_json(change_value(json.loads(content), chance), chance)
    return change_text(content, pool, chance)


def write_json(value: Any, chance: Random) -> bytes:
    text = json.dumps(value, ensure_ascii=bool(chance.randrange(4)))
    for name, raw in RAW.items():
        text = text.replace(f'"{name}"', raw)
    return text.encode("utf-8", "surrogatepass")


def change_json_lines(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """Mostly a value of one line; else lines."""
    lines = content.splitlines(keepends=True)
    if not lines or chance.randrange(3) == 0:
        return change_text(content, pool, chance)
    at = chance.randrange(len(lines))
    lines[at] = change_json(lines[at], pool, chance).replace(b"\n", b" ") + b"\n"
    return b"".join(lines)


def change_yaml(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """Mostly a value of it, written as YAML or as JSON, which is YAML; else its text."""
    if chance.randrange(5) == 0:
        return change_text(content, pool, chance)
    with suppress(yaml.YAMLError, ValueError, RecursionError, TypeError, KeyError):
        value = change_value(yaml.load(content, yaml.CSafeLoader), chance)
        if chance.randrange(2):
            return write_json(value, chance)
        return str(yaml.dump(value, Dumper=yaml.CSafeDumper)).encode("utf-8", "surrogatepass")
    return change_text(content, pool, chance)
