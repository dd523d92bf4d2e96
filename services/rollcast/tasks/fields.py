"""Fields of a row, checked."""

import datetime
import uuid
from decimal import Decimal
from typing import Any

from rollcast.config.sentences import kind_of

Row = dict[str, Any]


class RowError(ValueError):
    """A mistake in a row; the reader adds which row it is."""


def value(row: Row, name: str) -> Any:
    """The field `name`, or for `a.b` field b of field a. Raises RowError if it is missing, null or empty."""
    found: Any = row.get(name)
    if name not in row and "." in name:
        found = row
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
    if found is None or found == "":
        raise RowError(
            f"field {name!r} is missing or empty (the row has {', '.join(map(repr, list(row)[:10]))}); "
            "add it, or name the right field or mapping in tasks.dataset"
        )
    return found


def text(row: Row, name: str) -> str:
    """A field that holds text or a number."""
    found = value(row, name)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise RowError(f"field {name!r} holds {kind_of(found)}, needs text; name another field in tasks.dataset")
    return checked_text(str(found), f"field {name!r}")


def checked_text(written: str, where: str) -> str:
    """Raises RowError for what no tokenizer reads."""
    if any("\ud800" <= character <= "\udfff" for character in written):
        raise RowError(f"{where} holds half of a surrogate pair, which no tokenizer reads; fix or remove the row")
    return written


def plain_values(row: Row) -> Row:
    """The row as JSON has it: dates and decimal numbers become text. Raises RowError naming a field that cannot."""
    return {name: _plain(found, name) for name, found in row.items()}


def _plain(found: Any, name: str) -> Any:
    if isinstance(found, str | int | float | bool | None):
        return found
    if isinstance(found, list | tuple):
        return [_plain(item, name) for item in found]
    if isinstance(found, dict):
        return {str(key): _plain(item, name) for key, item in found.items()}
    if isinstance(found, datetime.date | datetime.time | datetime.timedelta | Decimal | uuid.UUID):
        return str(found)
    raise RowError(
        f"field {name!r} holds {type(found).__name__}, which is no JSON value, and the verifier gets the whole row; "
        "convert or remove it"
    )
