"""The tables inside of a JSON document: of training and of evaluation, and of several runs by their
names.

    {"train": [{"step": 1, "reward": .2}, ..], "eval": [..]}     columns train/reward, eval/..
    {"a": {"steps": [{"step": 1, "reward": .2}, ..]}, "b": ..}   runs a and b
    [{"name": "a", "history": [{"step": 1, ..}, ..]}, ..]        runs by their name, or numbered
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from rollcast.curves.columns.names import is_step_counter, measures_success, names_stage, words_in
from rollcast.curves.columns.words import STEP_NAMES
from rollcast.curves.formats.nested import flat
from rollcast.curves.sheet import RUN

MAX_TABLE_DEPTH = 4
"""Levels of objects and lists in which tables are looked for."""
MAX_SAMPLED_ROWS = 20
"""Rows of a table that are looked at for their columns."""
SCALAR_NAMES = ("wall_time", "step", "value")
SETTINGS_WORDS = {"config", "hparams", "args", "params", "settings"}
EPOCH_NAMES = ("epoch", "epochs")
LABEL_NAMES = (
    "run",
    "run_name",
    "name",
    "run_id",
    "id",
    "label",
    "experiment",
    "exp_name",
    "seed",
    "model",
    "method",
)
"""Fields that name a run in a list of runs."""
Objects = list[Mapping[str, Any]]
Path = tuple[str, ...]


@dataclass(frozen=True)
class _Table:
    """Attributes:
    path: the names that lead to it in the document.
    rows: one mapping for each row.
    """

    path: Path
    rows: Objects

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def is_of_a_stage(self) -> bool:
        return names_stage(self.name)

    @cached_property
    def measures(self) -> frozenset[str]:
        """The columns of its first rows that measure success."""
        names = dict.fromkeys(name for row in self.rows[:MAX_SAMPLED_ROWS] for name in flat(row))
        # Names of columns that are looked at for a measure of success
        return frozenset(name for name in islice(names, 1_000) if measures_success(name))

    @property
    def counts_steps(self) -> bool:
        """Whether a column of its first rows counts steps."""
        return any(is_step_counter(name) for row in self.rows[:MAX_SAMPLED_ROWS] for name in row)

    def named_rows(self) -> Objects:
        """The rows with the path before every name, apart from those that count steps or epochs."""
        return [
            {self._full_name(name): value for name, value in flat(row).items()} for row in self.rows
        ]

    def _full_name(self, name: str) -> str:
        is_shared = not self.is_of_a_stage or is_step_counter(name) or name in EPOCH_NAMES
        return name if is_shared else f"{self.name}/{name}"


def objects_in(document: object) -> Objects:
    """The rows of every table in the document: lists of objects, and objects of columns of one
    length.

    Of several tables, as of training and of evaluation, the path to each is put before its names,
    and their rows are in the order of their steps. Those of several runs have a column that names
    the run.
    """
    max_tables = 1_000
    if isinstance(document, list):
        items: Objects = [item for item in document if isinstance(item, dict)]
        if items and not _holds_runs(items, 0):
            return items
        tables = list(islice(_tables_of_items((), items, 0), max_tables))
        return _rows_of_runs(tables) or (_join_tables(tables) if tables else _scalars(document))
    if not isinstance(document, dict):
        return []
    tables = list(islice(_tables((), document, 0), max_tables))
    if runs := _rows_of_runs(tables):
        return runs
    return _join_tables(tables) if tables else [document]


def _join_tables(tables: Sequence[_Table]) -> Objects:
    """The rows of the tables of one run: of the longest, of stages, and of measures over the same
    steps.
    """
    longest = max(tables, key=lambda table: len(table.rows))
    chosen = [
        table
        for table in tables
        if table.is_of_a_stage
        or table.path == longest.path
        or (table.measures and table.counts_steps)
    ]
    if len(chosen) == 1:
        return longest.rows
    rows = [row for table in chosen for row in table.named_rows()]
    counter = next(
        (
            name
            for name in STEP_NAMES
            if all(isinstance(row.get(name), (int, float)) for row in rows)
        ),
        None,
    )
    # Otherwise the steps would fall between one table and the next, as at a restart.
    return rows if counter is None else sorted(rows, key=lambda row: row[counter])


def _rows_of_runs(tables: Sequence[_Table]) -> Objects:
    """The rows of all runs; empty unless tables that measure the same differ in one name on the
    path to them alone.
    """
    for level in range(MAX_TABLE_DEPTH + 1):
        by_rest: dict[tuple[Path, Path], list[_Table]] = defaultdict(list)
        for table in tables:
            if len(table.path) > level and not names_stage(table.path[level]):
                by_rest[table.path[:level], table.path[level + 1 :]].append(table)
        for (above, _), alike in by_rest.items():
            names = {table.path[level] for table in alike}
            if len(names) > 1 and frozenset.intersection(*(table.measures for table in alike)):
                return _rows_by_name(tables, above)
    return []


def _rows_by_name(tables: Sequence[_Table], above: Path) -> Objects:
    """The rows of all tables below a path; the next name on it is that of the run."""
    level = len(above)
    by_run: dict[str, list[_Table]] = defaultdict(list)
    for table in tables:
        if len(table.path) > level and table.path[:level] == above:
            by_run[table.path[level]].append(replace(table, path=table.path[level + 1 :]))
    measured = {
        run: run_tables
        for run, run_tables in by_run.items()
        if any(table.measures for table in run_tables)
    }
    return [{**row, RUN: run} for run, tables in measured.items() for row in _join_tables(tables)]


def _scalars(document: list[Any]) -> Objects:
    """Lists of step and value, or of time, step and value, as TensorBoard's page downloads them."""
    widths = {len(item) if isinstance(item, list) else 0 for item in document}
    if widths not in ({len(SCALAR_NAMES)}, {len(SCALAR_NAMES) - 1}):
        return []
    names = SCALAR_NAMES[-widths.pop() :]
    return [dict(zip(names, item, strict=True)) for item in document]


def _tables(path: Path, document: Mapping[str, Any], depth: int) -> Iterator[_Table]:
    """The tables in an object, and in those within it."""
    if _is_table_by_step(document, depth):
        yield _Table(path, [{"step": int(key), **item} for key, item in document.items()])
        return
    columns = {name: _column(values) for name, values in document.items()}
    by_length: dict[int, dict[str, list[Any]]] = {}
    for name, values in columns.items():
        if values is not None and len(values) > 1:
            by_length.setdefault(len(values), {})[name] = values
    for column_group in by_length.values():
        if len(column_group) > 1:
            rows = zip(*column_group.values(), strict=True)
            yield _Table(path, [dict(zip(column_group, row, strict=True)) for row in rows])
    for name, value in document.items():
        # Settings may hold lists of objects that look like tables.
        if columns[name] is not None or words_in(name) & SETTINGS_WORDS:
            continue
        if isinstance(value, list):
            objects: Objects = [item for item in value if isinstance(item, dict)]
            if objects and _holds_runs(objects, depth):
                yield from _tables_of_items((*path, name), objects, depth + 1)
            elif objects:
                yield _Table((*path, name), objects)
        elif isinstance(value, dict) and depth < MAX_TABLE_DEPTH:
            yield from _tables((*path, name), value, depth + 1)


def _is_table_by_step(document: Mapping[str, Any], depth: int) -> bool:
    """Whether all names count, and each is that of a row, and not of a run with a table
    of its own.
    """
    if len(document) < 2 or not all(
        key.isdigit() and isinstance(item, dict) for key, item in document.items()
    ):
        return False
    return not any(
        _holds_a_table(item, depth) for item in islice(document.values(), MAX_SAMPLED_ROWS)
    )


def _holds_a_table(item: Mapping[str, Any], depth: int) -> bool:
    """Whether a measure of success is in a table inside of an object, and not in a field of it."""
    if depth >= MAX_TABLE_DEPTH or any(map(measures_success, flat(item))):
        return False
    return any(table.measures for table in islice(_tables((), item, depth + 1), MAX_SAMPLED_ROWS))


def _holds_runs(items: Objects, depth: int) -> bool:
    """Whether the objects of a list are runs, each with a table, and not rows."""
    return all(_holds_a_table(item, depth) for item in items[:MAX_SAMPLED_ROWS])


def _tables_of_items(path: Path, items: Objects, depth: int) -> Iterator[_Table]:
    """The tables of a list of runs, each below the field that names the run, or its number."""
    labels = (
        name
        for name in LABEL_NAMES
        if len({str(item[name]) for item in items if name in item}) == len(items)
    )
    label = next(labels, "")
    for number, item in enumerate(items, 1):
        name = str(item.get(label, number))
        yield from _tables((*path, name), item, depth + 1)


def _column(values: object) -> list[Any] | None:
    """Numbers in a list, or by their row as pandas writes a frame; None for anything else."""
    if isinstance(values, dict) and values and all(str(key).isdigit() for key in values):
        values = list(values.values())
    if (
        not isinstance(values, list)
        or not values
        or any(isinstance(value, (dict, list)) for value in values)
    ):
        return None
    return values
