"""Fields of a row, checked."""

import datetime
import uuid
from decimal import Decimal
from typing import Any

from rollcast.config.sentences import type_in_words

Row = dict[str, Any]


class RowError(ValueError):
    """A mistake in a row; the reader adds which row it is."""


def value(row: Row, name: str) -> Any:
    """The field `name`, or for `a.b` field b of field a.

    Raises RowError if it is missing, null or empty.
    """
    field_value: Any = row.get(name)
    if name not in row and "." in name:
        field_value = row
        for key in name.split("."):
            field_value = field_value.get(key) if isinstance(field_value, dict) else None
    if field_value is None or field_value == "":
        raise RowError(
            f"field {name!r} is missing or empty (the row has "
            f"{', '.join(map(repr, list(row)[:10]))}); "
            "add it, or name the right field or mapping in tasks.dataset"
        )
    return field_value


def text(row: Row, name: str) -> str:
    """A field that holds text or a number."""
    field_value = value(row, name)
    if isinstance(field_value, bool) or not isinstance(field_value, str | int | float):
        raise RowError(
            f"field {name!r} holds {type_in_words(field_value)}, needs text; name another field in "
            "tasks.dataset"
        )
    return checked_text(str(field_value), f"field {name!r}")


def checked_text(field_text: str, where: str) -> str:
    """Raises RowError for what no tokenizer reads."""
    if any("\ud800" <= character <= "\udfff" for character in field_text):
        raise RowError(
            f"{where} holds half of a surrogate pair, which no tokenizer reads; fix or remove the "
            "row"
        )
    return field_text


def shorten(text: str) -> str:
    """The beginning of a text, for a message."""
    longest = 60
    return text if len(text) <= longest else f"{text[:longest]}..."


def plain_values(row: Row) -> Row:
    """The row as JSON has it: dates and decimal numbers become text.

    Raises RowError naming a field that cannot.
    """
    return {name: _plain(field_value, name) for name, field_value in row.items()}


def _plain(content: Any, name: str) -> Any:
    if isinstance(content, str | int | float | bool | None):
        return content
    if isinstance(content, list | tuple):
        return [_plain(item, name) for item in content]
    if isinstance(content, dict):
        return {str(key): _plain(item, name) for key, item in content.items()}
    if isinstance(
        content, datetime.date | datetime.time | datetime.timedelta | Decimal | uuid.UUID
    ):
        return str(content)
    raise RowError(
        f"field {name!r} holds {type(content).__name__}, which is no JSON value, and the verifier "
        "gets the whole row; convert or remove it"
    )
