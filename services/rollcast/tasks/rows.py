"""Rows of data sets: JSON lines, Parquet files, sets of the Hugging Face hub.

Every reader yields (where, row): `where` names the row in complaints. None of them trusts its
input: lines and tables are bounded, and every failure of a reader becomes one sentence for the
user.
"""

import gzip
import importlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from rollcast.config.datasets import HuggingfaceDataset, JsonlDataset, ParquetDataset, RowsDataset
from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.config.sentences import type_in_words
from rollcast.tasks.fields import Row
from rollcast.tasks.mappings import Hub

MAX_LINE_BYTES = 64 << 20
"""The tests of one programming task may well be some megabytes."""
MAX_ROWS = 10_000_000


def read_rows(
    dataset: RowsDataset, hub: Hub | None, skipped: Counter[str]
) -> Iterator[tuple[str, Row]]:
    """All rows of a data set. `hub`: the place where the mapping's data set is published; `skipped`
    counts empty lines.

    Raises UserError for a source that cannot be read, and for more rows than a run can hold.
    """
    match dataset:
        case JsonlDataset():
            rows = _lines(dataset.path, skipped)
        case ParquetDataset():
            rows = _parquet(dataset.path)
        case HuggingfaceDataset():
            rows = _hub(dataset, hub)
    for number, item in enumerate(rows):
        if number == MAX_ROWS:
            raise UserError(f"data set {dataset.name!r}: more than {MAX_ROWS} rows; give fewer")
        yield item


def _lines(path: Path, skipped: Counter[str]) -> Iterator[tuple[str, Row]]:
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rb") as file:
            for number, line in enumerate(
                iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1
            ):
                where = f"data set {path}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise UserError(
                        f"{where}: longer than {MAX_LINE_BYTES} bytes; shorten or remove it"
                    )
                if line.strip():
                    yield where, _parse(line, where)
                else:
                    skipped["empty"] += 1
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(
            f"tasks.dataset.path = {path}: broken gzip file ({error}); compress it again"
        ) from error
    except OSError as error:
        raise refused_by_the_world(
            error,
            (
                f"tasks.dataset.path = {path}: cannot be read ({error.strerror}); give the path of "
                "a JSONL file"
            ),
        ) from error


def _parse(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a JSON object ({error}); fix or remove it") from error
    if not isinstance(row, dict):
        raise UserError(
            f"{where}: holds {type_in_words(row)}, needs a JSON object; fix or remove it"
        )
    return row


def _parquet(path: Path) -> Iterator[tuple[str, Row]]:
    parquet = _library("pyarrow.parquet", "pyarrow")
    try:
        number = 0
        with parquet.ParquetFile(path) as file:
            # Rows of a Parquet file that are decoded together
            for batch in file.iter_batches(batch_size=64):
                for row in batch.to_pylist():
                    number += 1
                    yield f"data set {path}, row {number}", row
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())[:200]
        raise refused_by_the_world(
            error,
            (
                f"tasks.dataset.path = {path}: cannot be read ({reason}); give the path of a "
                "Parquet file"
            ),
        ) from error
    except _library("pyarrow", "pyarrow").ArrowException as error:
        raise UserError(
            f"tasks.dataset.path = {path}: not a Parquet file "
            f"({' '.join(str(error).split())[:200]}); give another"
        ) from error


def _hub(dataset: HuggingfaceDataset, hub: Hub | None) -> Iterator[tuple[str, Row]]:
    datasets = _library("datasets", "datasets")
    is_mapping_hub = dataset.path is None or (hub is not None and dataset.path == hub.path)
    home = hub if hub is not None and is_mapping_hub else Hub(dataset.path or "")
    config = dataset.config or home.config
    split = dataset.split or home.split
    datasets.disable_progress_bars()
    try:
        rows = datasets.load_dataset(home.path, name=config, split=split, revision=dataset.revision)
        for number, row in enumerate(islice(rows, MAX_ROWS + 1), start=1):
            yield f"data set {home.path}, {split} row {number}", row
    except Exception as error:  # the hub, its cache and every builder raise arbitrary exceptions
        sentence = (
            f"tasks.dataset.path = {home.path}: split {split!r} cannot be loaded from the Hugging "
            f"Face hub ({' '.join(str(error).split())[:300]}); check name, config and split, and "
            "that the hub or its cache is within reach"
        )
        if datasets.config.HF_HUB_OFFLINE:  # the library says "connection" then, too
            raise UserError(sentence) from error
        raise refused_by_the_world(error, sentence) from error


def _library(module: str, package: str) -> Any:
    """Import a library that only some data sets need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"tasks.dataset: this kind of data set needs the package {package}; install "
            "rollcast[data]"
        ) from error
