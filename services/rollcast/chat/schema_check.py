"""Arguments against the JSON schema of their tool, in bounded time whatever the two are.

Patterns are matched by RE2, in linear time. Others are left to the tool. So is a schema that needs
too many steps, is broken, or refers to one elsewhere: nothing is fetched.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

MAX_STEPS = 45_000
"""Schemas and keywords that are looked at for one call, which has 10,000 values at most. A step
takes some 5 us."""
ITEMS_PER_STEP = 10
"""Values or names that take as long as a step to compare or to go through."""
CHARACTERS_PER_STEP = 200
"""Characters of a message or a text that take as long as a step to write."""
_CLASSES = re.compile(r"\\[wWdDsSbB]")
"""Classes of characters that hold ASCII alone for RE2, every alphabet for Python."""

Keyword = Callable[[Any, Any, Any, Any], Any]
"""jsonschema's: validator, the keyword's value, instance, schema -> errors, or None."""


class _TooManyStepsError(Exception):
    """The check would take too long."""


@dataclass(slots=True)
class _Work:
    """The check under way."""

    schema: Mapping[str, Any]
    num_steps: int = 0


_work: ContextVar[_Work] = ContextVar("work")


def find_misfit(arguments: Mapping[str, Any], schema: Any) -> str:
    """The first misfit of arguments and schema.

    Empty = they fit, or the tool itself judges them.
    """
    if not isinstance(schema, Mapping):
        return ""
    token = _work.set(_Work(schema))
    try:
        error = next(iter(_validator(schema).iter_errors(dict(arguments))), None)
    except Exception:  # a broken schema raises whatever it breaks
        return ""
    finally:
        _work.reset(token)
    if error is None:
        return ""
    argument_path = ".".join(str(key) for key in error.absolute_path)
    return f"{error.message} (at {argument_path})" if argument_path else str(error.message)


def _validator(schema: Mapping[str, Any]) -> Any:
    import jsonschema
    from referencing import Registry

    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return _make_bounded_validator(kind)(schema, registry=Registry())


@cache
def _make_bounded_validator(kind: Any) -> Any:
    """A class of validators whose keywords are counted and take linear time."""
    import attrs
    import jsonschema

    linear: dict[str, Keyword] = {
        "uniqueItems": _unique_items,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        # They match patterns of other keywords, and follow references, by themselves.
        "unevaluatedProperties": _left_to_the_tool,
        "unevaluatedItems": _left_to_the_tool,
    }
    charged: dict[str, Callable[[Keyword], Keyword]] = {
        "$ref": _reference,
        "$dynamicRef": _reference,
        "enum": _equality,
        "const": _equality,
        "additionalProperties": _additional_properties,
    }
    keywords = {name: linear.get(name, check) for name, check in kind.VALIDATORS.items()}
    keywords |= {
        name: charge(keywords[name]) for name, charge in charged.items() if name in keywords
    }
    bounded = jsonschema.validators.extend(
        kind, {name: _count_steps(check) for name, check in keywords.items()}
    )
    # jsonschema's own takes another class, without bounds, for a part of the schema that names a
    # `$schema`.
    bounded.evolve = attrs.evolve
    descend = bounded.descend
    iter_errors = bounded.iter_errors

    def counted_descend(
        validator: Any, instance: Any, schema: Any, *places: Any, **named: Any
    ) -> Any:
        _visit(instance, schema)
        return descend(validator, instance, schema, *places, **named)

    def counted_errors(validator: Any, instance: Any) -> Any:
        _visit(instance, validator.schema)
        return iter_errors(validator, instance)

    bounded.descend = counted_descend
    bounded.iter_errors = counted_errors
    return bounded


def _visit(instance: Any, schema: Any) -> None:
    """Count a schema at an instance: its names, and for `false` the instance, which its message
    quotes.
    """
    _spend(1 + (_weight(instance) if schema is False else _length(schema)) // ITEMS_PER_STEP)


def _count_steps(check: Keyword) -> Keyword:
    def counting_check(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _spend(1 + (_length(value) + _length(instance)) // ITEMS_PER_STEP)
        for error in check(validator, value, instance, schema) or ():
            _spend(
                2 + len(error.message) // CHARACTERS_PER_STEP
            )  # with its object; it quotes instance and schema
            yield error

    return counting_check


def _reference(check: Keyword) -> Keyword:
    def follow(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        segments = str(value).count("/")
        # 4: steps of a reference, besides one for each segment of its path; chosen, not measured.
        _spend(4 + segments)
        if not (value == "#" or str(value).startswith("#/")) or validator._resolver._base_uri:
            _spend(_weight(_work.get().schema))  # a name is looked for in the whole schema
        return check(validator, value, instance, schema)

    return follow


def _equality(check: Keyword) -> Keyword:
    """Lists, objects and long texts are compared in depth, with each allowed value."""

    def compare(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _spend(_length(value) // ITEMS_PER_STEP)
        if isinstance(instance, dict | list) or (
            isinstance(instance, str) and len(instance) > CHARACTERS_PER_STEP
        ):
            _spend((1 + _length(value)) * _weight(instance) // ITEMS_PER_STEP)
        return check(validator, value, instance, schema)

    return compare


def _length(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


def _weight(value: Any) -> int:
    """Values and names inside, long texts counted as several."""
    weight = 0
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        weight += 1 + (len(inner) // CHARACTERS_PER_STEP if isinstance(inner, str) else 0)
        if isinstance(inner, Mapping):
            waiting += [*inner, *inner.values()]
        elif isinstance(inner, list):
            waiting += inner
    return weight


def _spend(steps: int) -> None:
    work = _work.get()
    work.num_steps += steps
    if work.num_steps > MAX_STEPS:
        raise _TooManyStepsError


def _left_to_the_tool(_validator: Any, _value: Any, _instance: Any, _schema: Any) -> None:
    return None


def _pattern(_validator: Any, pattern: Any, text: Any, _schema: Any) -> Iterator[Any]:
    import jsonschema

    if isinstance(text, str) and _matches(pattern, text) is False:
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Any, instance: Any, _schema: Any
) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            _spend(1)
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(check: Keyword) -> Keyword:
    """jsonschema's own, which matches the patterns of `patternProperties`, is given the names that
    match none.
    """

    def additional(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        patterns = schema.get("patternProperties") or {}
        if not patterns or not isinstance(instance, dict):
            yield from check(validator, value, instance, schema) or ()
            return
        unmatched_values = {}
        for name in instance:
            matches = [_matches(pattern, name) for pattern in patterns]
            _spend(len(matches))
            if None in matches:
                return
            if not any(matches):
                unmatched_values[name] = instance[name]
        without = {
            name: subschema for name, subschema in schema.items() if name != "patternProperties"
        }
        yield from check(validator, value, unmatched_values, without) or ()

    return additional


def _matches(pattern: Any, text: str) -> bool | None:
    """None = RE2 does not take the pattern, or understands it otherwise than Python."""
    if not (
        isinstance(pattern, str) and (pattern.isascii() and text.isascii())
    ) and _CLASSES.search(str(pattern)):
        return None
    # Longer patterns are left to the tool
    compiled = (
        _compile_pattern(pattern) if isinstance(pattern, str) and len(pattern) <= 1_000 else None
    )
    if compiled is None:
        return None
    # Instructions of a pattern times characters of a text, of which RE2 does some thirty million a
    # second at worst
    _spend(compiled.programsize * len(text) // 200)
    return compiled.search(text) is not None


@lru_cache(512)  # a few kilobytes each; chosen, not measured
def _compile_pattern(pattern: str) -> Any:
    """None = RE2 does not take it: it looks around, or back to a group, or is too large."""
    try:
        import re2
    except ImportError:  # an installation without the extra `generator`
        return None
    options = re2.Options()
    options.log_errors = False
    # Memory of one compiled pattern
    options.max_mem = 1 << 20
    with suppress(re2.error, UnicodeError):
        return re2.compile(pattern, options)
    return None


def _unique_items(_validator: Any, is_unique: Any, items: Any, _schema: Any) -> Iterator[Any]:
    """jsonschema's own compares every two items."""
    import jsonschema

    if not is_unique or not isinstance(items, list):
        return
    texts = [json.dumps(_canonical(item), sort_keys=True) for item in items]
    _spend(sum(map(len, texts)) // CHARACTERS_PER_STEP)
    if len(set(texts)) < len(texts):
        yield jsonschema.ValidationError("the items are not unique")


def _canonical(value: Any) -> Any:
    """The value with one way to write each number: 1.0 is 1, and true is neither."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, list):
        return [_canonical(item) for item in value]
    if isinstance(value, dict):
        return {name: _canonical(item) for name, item in value.items()}
    return value
