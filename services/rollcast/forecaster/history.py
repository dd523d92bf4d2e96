"""The forecaster's state across restarts: evaluations, incarnations, metric grids and its own past
forecasts.

One SQLite file. A file that cannot be opened is set aside and a new one begins; a write that fails
is raised to the caller, who counts it: the forecast itself never waits for the disk to have room.
"""

import json
import sqlite3
import threading
from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rollcast.config.access_modes import FOLDER_MODE
from rollcast.config.errors import UserError
from rollcast.curves.evaluations import CurvePoint, Origin
from rollcast.telemetry.logging import get_logger

MAX_FORECASTS = 400
"""Most forecasts kept of one run; beyond that every second one of the older half is dropped."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS evaluations (
  run TEXT, dataset TEXT, incarnation INTEGER, step INTEGER, pass_rate REAL, compute REAL,
  standard_error REAL, trained_tokens REAL, samples REAL, at REAL, truncation_ratio REAL,
  start_up REAL, devices REAL, graded_share REAL,
  PRIMARY KEY (run, dataset, incarnation, step)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS starts (
  run TEXT, incarnation INTEGER, step INTEGER, PRIMARY KEY (run, incarnation));
CREATE TABLE IF NOT EXISTS pushed (run TEXT PRIMARY KEY, unit TEXT, budget REAL);
CREATE TABLE IF NOT EXISTS grids (name TEXT PRIMARY KEY, compute TEXT);
CREATE TABLE IF NOT EXISTS forecasts (
  id INTEGER PRIMARY KEY, name TEXT, made_at REAL, replayed INTEGER, num_points INTEGER,
  compute REAL, pass_rate REAL, verdict TEXT, asymptote TEXT, headroom TEXT, end_compute REAL,
  end_reading TEXT, band TEXT);
CREATE INDEX IF NOT EXISTS forecasts_by_name ON forecasts (name, id);
CREATE TABLE IF NOT EXISTS advice (
  name TEXT PRIMARY KEY, num_points INTEGER, kind TEXT, evaluations INTEGER);
"""
_JSON_COLUMNS = ("asymptote", "headroom", "end_reading")
"""Quantiles of a forecast, each a list in one field."""
log = get_logger()


@dataclass(frozen=True)
class KeptForecast:
    """A forecast as it was made. Quantile tuples are 5, 25, 50, 75 and 95 %."""

    id: int
    name: str
    made_at: float
    replayed: bool
    """Made afterwards from the evaluations up to then, because several arrived together."""
    num_points: int
    compute: float
    pass_rate: float
    verdict: str
    asymptote: tuple[float, ...] | None
    """None if no law described the curve."""
    headroom: tuple[float, ...] | None
    end_compute: float | None
    end_reading: tuple[float, ...] | None
    band: tuple[tuple[float, ...], ...]
    """Five rows over the run's grid of computes; none if no readings were forecast."""


@dataclass(frozen=True)
class PushedRun:
    """Facts about a pushed run, as its trainer states them."""

    name: str
    unit: str
    """Unit of compute."""
    budget: float | None
    """Compute at which the run would end."""

    @property
    def origin(self) -> Origin:
        return Origin("pushed", self.unit, "pass_rate", self.unit)


@dataclass(frozen=True)
class KeptAdvice:
    """The newest advice on a run's own terms."""

    name: str
    num_points: int
    """Evaluations that it was made from."""
    kind: str
    evaluations: int
    """Evaluations to wait for; 0 for stop and continue."""


class History:
    """Thread-safe; every call takes milliseconds."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = _open(path)

    def load(
        self,
    ) -> tuple[list[CurvePoint], dict[str, dict[int, int]], dict[str, tuple[float, ...]]]:
        """Evaluations in the order of their time, incarnation starts by run,
        metric grids by name.
        """
        rows = self._rows("SELECT * FROM evaluations ORDER BY at, incarnation, step")
        starts: dict[str, dict[int, int]] = {}
        for run, incarnation, step in self._rows("SELECT run, incarnation, step FROM starts"):
            starts.setdefault(run, {})[incarnation] = step
        grid_rows = self._rows("SELECT name, compute FROM grids")
        grids = {name: tuple(json.loads(text)) for name, text in grid_rows}
        return [CurvePoint(*row) for row in rows], starts, grids

    def add_evaluations(self, evaluations: list[CurvePoint]) -> None:
        command = "INSERT OR IGNORE INTO evaluations VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
        self._write(command, map(astuple, evaluations))

    def add_starts(self, run: str, starts: dict[int, int]) -> None:
        rows = ((run, incarnation, step) for incarnation, step in starts.items())
        self._write("INSERT OR REPLACE INTO starts VALUES (?,?,?)", rows)

    def load_pushed_runs(self) -> list[PushedRun]:
        """The runs that trainers pushed."""
        return [PushedRun(*row) for row in self._rows("SELECT run, unit, budget FROM pushed")]

    def add_pushed(self, run: PushedRun) -> None:
        self._write("INSERT OR REPLACE INTO pushed VALUES (?,?,?)", [astuple(run)])

    def add_grid(self, name: str, compute: tuple[float, ...]) -> None:
        self._write("INSERT OR REPLACE INTO grids VALUES (?,?)", [(name, json.dumps(compute))])

    def add_forecast(self, past: KeptForecast) -> None:
        """Keep one forecast; `past.id` is given by the file."""
        _, *row = (
            json.dumps(value) if name in _JSON_COLUMNS and value is not None else value
            for name, value in vars(past).items()
        )
        # A band is kept to five digits.
        row[-1] = json.dumps([[round(value, 5) for value in values] for values in past.band])
        with self._lock, self._connection:
            self._connection.execute((f"INSERT INTO forecasts VALUES (NULL{',?' * 12})"), row)  # noqa: S608
            (count,) = self._connection.execute(
                "SELECT COUNT(*) FROM forecasts WHERE name = ?", (past.name,)
            ).fetchone()
            if count > MAX_FORECASTS:
                self._connection.execute(
                    "DELETE FROM forecasts WHERE id IN (SELECT id FROM (SELECT id, ROW_NUMBER() "
                    "OVER (ORDER BY id) AS place FROM forecasts WHERE name = ?) WHERE place <= ? "
                    "AND place % 2 = 0)",
                    (past.name, MAX_FORECASTS // 2),
                )

    def keep_advice(self, advice: KeptAdvice) -> None:
        """Take the place of the run's last advice."""
        self._write("INSERT OR REPLACE INTO advice VALUES (?,?,?,?)", [astuple(advice)])

    def advice(self) -> list[KeptAdvice]:
        """The newest advice on every run."""
        rows = self._rows("SELECT name, num_points, kind, evaluations FROM advice")
        return [KeptAdvice(*row) for row in rows]

    def forecasts(self, name: str) -> list[KeptForecast]:
        """All forecasts of a run, in the order of the compute at which they were made."""
        return self._forecasts("name = ? ORDER BY compute, id", name)

    def last_forecast_before(self, name: str, compute: float) -> KeptForecast | None:
        """The newest one made at `compute` or less."""
        newest_first = "name = ? AND compute <= ? ORDER BY compute DESC, id DESC LIMIT 1"
        return next(iter(self._forecasts(newest_first, name, compute)), None)

    def forecast(self, name: str, forecast_id: int) -> KeptForecast | None:
        return next(iter(self._forecasts("name = ? AND id = ?", name, forecast_id)), None)

    def _forecasts(self, condition: str, *values: str | float) -> list[KeptForecast]:
        rows = self._rows(f"SELECT * FROM forecasts WHERE {condition}", *values)  # noqa: S608
        return [_from_row(row) for row in rows]

    def _rows(self, query: str, *values: str | float) -> list[sqlite3.Row]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()

    def _write(self, command: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute a command for each row, all or none."""
        with self._lock, self._connection:
            self._connection.executemany(command, rows)

    def forget(self, run: str, names: Collection[str]) -> None:
        """The evaluations of the run and the forecasts made of them.

        `names`: under which these are kept.
        """
        with self._lock, self._connection:
            for table in ("evaluations", "starts"):
                self._connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))  # noqa: S608
            for table in ("grids", "forecasts", "advice"):
                command = f"DELETE FROM {table} WHERE name = ?"  # noqa: S608
                self._connection.executemany(command, [(name,) for name in names])

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _from_row(row: sqlite3.Row) -> KeptForecast:
    values = dict(row)
    for name in _JSON_COLUMNS:
        values[name] = None if values[name] is None else tuple(json.loads(values[name]))
    values["band"] = tuple(tuple(quantiles) for quantiles in json.loads(values["band"]))
    values["replayed"] = bool(values["replayed"])
    return KeptForecast(**values)


def _open(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        try:
            return _connect(path)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise
            aside = path.with_suffix(path.suffix + ".unreadable")
            path.replace(aside)
            log.warning(
                "the history of forecasts is not readable; it is set aside for a new one",
                file=str(aside),
            )
            return _connect(path)
    except (OSError, sqlite3.OperationalError) as error:
        raise UserError(
            f"forecaster.history = {path}: cannot be written ({error}); give the path of a file in "
            "a writable folder"
        ) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, timeout=5.0)
    connection.row_factory = sqlite3.Row
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(_SCHEMA)
        connection.execute("SELECT COUNT(*) FROM forecasts").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection
