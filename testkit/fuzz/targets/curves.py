"""Logs of every format, each as the curve that `rollcast fit` reads of it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from rollcast.config.errors import UserError
from rollcast.curves import run_evaluations
from rollcast.curves.columns.choices import Columns
from rollcast.curves.curve_source import read_histories
from rollcast.curves.formats import (
    delimited,
    framed_tables,
    html_tables,
    json_rows,
    key_values,
    mlflow_store,
    nemo_rl,
    notebook,
    open_instruct,
    pasted_tables,
    prime_rl,
    tensorboard,
    wandb_offline,
)
from rollcast.curves.formats.log_file import LogFile
from rollcast.curves.formats.recognise import FORMATS
from rollcast.curves.formats.tensorboard import masked_crc32c
from rollcast.curves.sheet import TooMuch
from rollcast.runfolder import record_file
from rollcast.runfolder.files import EVALUATIONS
from testkit.fuzz.mutation import change_bytes, change_json, change_json_lines, change_text
from testkit.fuzz.target import Mutator, Target, is_json, scratch_file, scratch_folder

FILES = Path(__file__).parents[3] / "tests" / "curves" / "formats"
FOUND_OTHERWISE = (delimited, mlflow_store, wandb_offline, tensorboard, html_tables)
CONSOLES = (nemo_rl, open_instruct, prime_rl, framed_tables, pasted_tables, key_values)


def _files(*names: str) -> Callable[[], list[bytes]]:
    return lambda: [file.read_bytes() for name in names for file in sorted(FILES.glob(name))]


def change_records(content: bytes, pool: Sequence[bytes], chance: Random) -> bytes:
    """One record of an event file, with the right length and its checksum; now and then bytes."""
    records = []
    offset = 0
    while len(content) - offset >= 16:
        length = int.from_bytes(content[offset : offset + 8], "little")
        records.append(content[offset + 12 : offset + 12 + length])
        offset += length + 16
    if not records or chance.randrange(10) == 0:
        return change_bytes(content, pool, chance)
    at = chance.randrange(len(records))
    records[at] = change_bytes(records[at], records, chance)
    heads = (len(record).to_bytes(8, "little") for record in records)
    return b"".join(
        head + masked_crc32c(head).to_bytes(4, "little") + record + bytes(4)
        for head, record in zip(heads, records, strict=True)
    )


def _recognised_by(formats: Collection[Any]) -> Callable[[bytes], bool]:
    def recognises(content: bytes) -> bool:
        log = LogFile(scratch_file("first_check.log", content), lambda _: None)
        try:
            return any(format.recognises(log) for format in formats)
        except (UserError, TooMuch):
            return False

    return recognises


def _read(content: bytes) -> object:
    with contextlib.redirect_stderr(io.StringIO()):
        return read_histories(str(scratch_file("curve.log", content)), Columns())


def _target(
    name: str,
    seeds: Callable[[], list[bytes]],
    mutate: Mutator,
    passes: Callable[[bytes], bool],
    modules: tuple[ModuleType, ...] = (),
    *,
    read: Callable[[bytes], object] = _read,
) -> Target:
    places = tuple(module.__name__.removeprefix("rollcast.") for module in modules)
    return Target(
        f"curve-{name}", seeds, mutate, passes, read, (UserError,), (*places, "curves.columns")
    )


def _csv() -> list[bytes]:
    head = "step,gpu_hours,eval/accuracy,loss\n"
    rows = "".join(
        f"{n},{n * 0.5},{0.2 + n / 100:.3f},{1 / (n + 1):.4f}\n" for n in range(0, 40, 4)
    )
    return [
        (head + rows).encode(),
        (head + rows).replace(",", "\t").encode(),
        (head + rows).replace(",", ";").replace(".", ",").encode(),
        b"epoch,timestamp,acc\n"
        + b"".join(b"%d,2024-01-0%d,%d%%\n" % (n, n, 20 + n) for n in range(1, 9)),
    ]


def _consoles() -> list[bytes]:
    files = [file.read_bytes() for file in sorted(FILES.glob("*/*.log"))]
    # A log with two sets is refused until one is chosen.
    return [content.replace(b"math_dapo/acc", b"math_dapo/length") for content in files]


def _notebooks() -> list[bytes]:
    table = "<table><tr><th>Step</th><th>Eval Accuracy</th></tr>" + "".join(
        f"<tr><td>{n}</td><td>{0.2 + n / 100}</td></tr>" for n in range(0, 60, 10)
    )
    outputs = [
        {"output_type": "display_data", "data": {"text/html": [table + "</table>"]}},
        {"output_type": "stream", "text": [f"step={n} accuracy={n / 100}\n" for n in range(9)]},
    ]
    return [
        json.dumps(
            {"cells": [{"cell_type": "code", "source": [], "outputs": [output]}], "nbformat": 4}
        ).encode()
        for output in outputs
    ]


def _is_notebook(content: bytes) -> bool:
    try:
        return notebook.recognises(
            LogFile(scratch_file("first_check.log", content), lambda _: None)
        )
    except (UserError, TooMuch):
        return False


def _tables() -> list[bytes]:
    rows = "".join(f"<tr><td>{n}</td><td>{0.2 + n / 100}</td></tr>" for n in range(0, 60, 10))
    html = f"<html><table><tr><th>Step</th><th>Accuracy</th></tr>{rows}</table></html>"
    return [html.encode()]


def _evaluations() -> list[bytes]:
    rows = [
        {
            **{"incarnation": 1, "step": step, "pass_rate": 0.2 + step / 200, "at": 1.7e9 + step},
            **{"compute_device_hours": step * 0.5, "num_prompts": 64, "asked_prompts": 64},
            **{"standard_error": 0.02, "samples": 512, "trained_tokens": 1_000 * step},
        }
        for step in range(0, 60, 10)
    ]
    return ["".join(f"{json.dumps(row)}\n" for row in rows).encode()]


def _read_folder(content: bytes) -> object:
    folder = scratch_folder() / "run"
    folder.mkdir(exist_ok=True)
    (folder / "format.json").write_text('{"format": 1}')
    (folder / EVALUATIONS).write_bytes(content)
    with contextlib.redirect_stderr(io.StringIO()):
        return read_histories(str(folder), Columns())


def _has_json_line(content: bytes) -> bool:
    return any(line.startswith(b"{") and is_json(line) for line in content.splitlines())


JSON_FORMATS = [format for format in FORMATS if format not in (*FOUND_OTHERWISE, *CONSOLES)]
TARGETS = (
    _target("csv", _csv, change_text, lambda content: content.count(b"\n") > 2, (delimited,)),
    _target(
        "json",
        _files("files/*.json", "small_logs/*.json"),
        change_json,
        is_json,
        (json_rows,),
    ),
    _target(
        "jsonl",
        _files("files/*.jsonl", "small_logs/*.jsonl"),
        change_json_lines,
        _has_json_line,
        (json_rows,),
    ),
    _target("notebook", _notebooks, change_json, _is_notebook, (notebook,)),
    _target("html", _tables, change_text, _recognised_by([html_tables]), (html_tables,)),
    _target(
        "console",
        _consoles,
        change_text,
        _recognised_by([format for format in FORMATS if format not in FOUND_OTHERWISE]),
        CONSOLES,
    ),
    _target(
        "tensorboard",
        _files("files/tensorboard/*"),
        change_records,
        _recognised_by([tensorboard]),
        (tensorboard,),
    ),
    _target(
        "wandb",
        _files("files/*.wandb"),
        change_bytes,
        _recognised_by([wandb_offline]),
        (wandb_offline,),
    ),
    _target(
        "mlflow",
        lambda: [gzip.decompress((FILES / "files" / "mlflow.db.gz").read_bytes())],
        change_bytes,
        _recognised_by([mlflow_store]),
        (mlflow_store,),
    ),
    _target(
        *("run-folder", _evaluations, change_json_lines, _has_json_line),
        (run_evaluations, record_file),
        read=_read_folder,
    ),
)
