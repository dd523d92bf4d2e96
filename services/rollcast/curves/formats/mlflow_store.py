"""MLflow's SQLite store: real tables alone, in a bounded time and memory.

A file of a few pages can spell any amount of rows: by views, by columns that are computed, by pages
that name one page many times. So nothing of the schema but two plain tables is read, and no more
rows than a file of that size can hold.
"""

import sqlite3
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves.formats.log_file import MAX_FILE_BYTES, LogFile
from rollcast.curves.formats.mlflow_folder import distinct, merge_rows
from rollcast.curves.sheet import MAX_ROWS, Row, Sheet, TooMuch

NAME = "MLflow store"
FIRST_BYTES = b"SQLite format 3\x00"
_READ = frozenset({"runs", "metrics", "sqlite_master"})
_FUNCTIONS = frozenset({"typeof"})
_RUNS = (
    "SELECT run_uuid, name FROM runs NOT INDEXED WHERE typeof(run_uuid) = 'text' AND typeof(name) "
    "= 'text'"
)
_METRICS = (
    "SELECT run_uuid, key, step, timestamp, value FROM metrics NOT INDEXED WHERE NOT is_nan "
    "AND typeof(run_uuid) = 'text' AND typeof(key) = 'text' AND typeof(step) = 'integer' "
    "AND typeof(timestamp) = 'integer' AND typeof(value) IN ('real', 'integer')"
)


def recognises(log: LogFile) -> bool:
    return log.content.startswith(FIRST_BYTES)


def read(log: LogFile) -> Sheet:
    """Every run in a SQLite store. Raises UserError: MLflow did not make it. Raises TooMuch."""
    return Sheet.from_rows(NAME, _rows(log.path))


def _rows(path: Path) -> list[Row]:
    # Quoted: after a # the address would end, and with it that the file is only read.
    address = f"file:{urllib.parse.quote(path.resolve().as_posix())}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as connection:
            _restrict(connection)
            for table in ("runs", "metrics"):
                _check_is_plain(connection, table)
            connection.set_authorizer(_authorise)
            store = _Store(connection, path)
            names: dict[str, str] = dict(store.rows(_RUNS))
            values = list(store.rows(_METRICS))
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: is not a SQLite store of MLflow ({' '.join(str(error).split())[:200]}); give "
            "its mlflow.db"
        ) from None
    values.sort(key=lambda item: item[3])
    called = distinct({run: names.get(run) or run for run, *_ in values})
    return merge_rows((called[run], key, step, at, value) for run, key, step, at, value in values)


def _restrict(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    # Upper limit of one field, computed or stored
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)
    # Time limit for reading the whole store
    deadline = time.monotonic() + 20.0
    # SQLite's own steps between two looks at the clock
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 1_000)


def _check_is_plain(connection: sqlite3.Connection, table: str) -> None:
    """Raises sqlite3.Error unless it is a table with pages of its own, all of whose columns are
    stored.
    """
    table_types = connection.execute(
        "SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE AND rootpage > 0 LIMIT 2",
        (table,),
    ).fetchall()
    if table_types != [("table",)]:
        raise sqlite3.DatabaseError(f"no such table: {table}")
    if any(hidden for *_, hidden in connection.execute(f"PRAGMA table_xinfo({table})")):
        raise sqlite3.DatabaseError(f"columns of {table} are computed")


def _authorise(
    action: int, first: str | None, second: str | None, database: str | None, within: str | None
) -> int:
    """Reading those tables, not by way of a view or a trigger, and nothing else."""
    is_read = action == sqlite3.SQLITE_READ and first in _READ and within is None
    is_known = action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS
    return (
        sqlite3.SQLITE_OK
        if is_read or is_known or action == sqlite3.SQLITE_SELECT
        else sqlite3.SQLITE_DENY
    )


class _Store:
    """Hands out rows until they are more than the file can hold; equal texts are kept once."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        log = path.with_name(f"{path.name}-wal")  # a running server keeps the newest rows there
        num_bytes = path.stat().st_size + (log.stat().st_size if log.is_file() else 0)
        # Least bytes that a row with a run, a name, a step, a time and a value takes in the file
        self._num_left = min(MAX_ROWS, num_bytes // 8)
        self._chars_left = MAX_FILE_BYTES
        self._texts: dict[str, str] = {}

    def rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        for row in self._connection.execute(query):
            self._num_left -= 1
            if self._num_left < 0:
                raise TooMuch("holds more rows than a sound file of its size")
            yield tuple(
                self._intern_text(value) if isinstance(value, str) else value for value in row
            )

    def _intern_text(self, text: str) -> str:
        if text not in self._texts:
            self._chars_left -= len(text)
            if self._chars_left < 0:
                raise TooMuch("holds more text than a sound file of its size")
            self._texts[text] = text
        return self._texts[text]
