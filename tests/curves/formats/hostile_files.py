"""Files that are made to take time or memory."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rollcast.curves.formats.tensorboard import masked_crc32c

MIB = 1 << 20
MOST = 60 * MIB
"""A little less than the largest file that is read."""
LONG = 8 * MIB
"""To a size whose square no CPU counts to; so is a twentieth of it."""
Make = Callable[[Path], object]


def text(content: str, times: int = 1, head: str = "", end: str = "") -> Make:
    return lambda path: path.write_text(head + content * times + end)


def lines(*made: str) -> Make:
    return text("".join(line + "\n" for line in made))


def later(make: Callable[[], Make]) -> Make:
    """What takes seconds or much memory to compose is composed by its own test, not by each process
    that collects.
    """
    return lambda path: make()(path)


def new_names(num_rows: int) -> Make:
    return lambda path: path.write_text(
        "".join(
            json.dumps({f"eval_acc_{row}_{name}": 0.5 for name in range(200)} | {"step": row})
            + "\n"
            for row in range(num_rows)
        )
    )


def names_of_one_rank(num_rows: int) -> Make:
    return lambda path: path.write_text(
        "".join(
            json.dumps({"step": row, f"eval_acc_{row}": row / 10_000}) + "\n"
            for row in range(num_rows)
        )
    )


def spellings(path: Path) -> None:
    """Of one name, in thousands of mixes of upper and lower case."""
    with path.open("w") as file:
        for row in range(8_192):
            name = "".join(
                letter.upper() if row >> place & 1 else letter
                for place, letter in enumerate("eval_accuracyx")
            )
            file.write(json.dumps({"step": row, name: 0.5}) + "\n")


def wandb(*records: tuple[int, bytes]) -> Make:
    def make(path: Path) -> None:
        content = bytearray(b":W&B" + b"\x00" * 3)
        for kind, data in records:
            if (left := 32_768 - len(content) % 32_768) < 7:
                content += b"\x00" * left
            content += struct.pack("<IHB", 0, len(data), kind) + data
        path.write_bytes(content)

    return make


def field(number: int, data: bytes) -> bytes:
    """Of a protobuf message, of a length."""
    size, spelt = len(data), b""
    while True:
        spelt += bytes([size & 0x7F | (0x80 if size > 0x7F else 0)])
        size >>= 7
        if not size:
            return varint(number << 3 | 2) + spelt + data


def varint(value: int) -> bytes:
    spelt = b""
    while value > 0x7F:
        spelt, value = spelt + bytes([value & 0x7F | 0x80]), value >> 7
    return spelt + bytes([value])


def history(name: str, value: str) -> bytes:
    return field(2, field(1, field(1, name.encode()) + field(16, value.encode())))


def pieces(data: bytes) -> list[tuple[int, bytes]]:
    """A long record as W&B writes it."""
    parts = [data[at : at + 30_000] for at in range(0, len(data), 30_000)]
    kinds = [2] + [3] * (len(parts) - 2) + [4]
    return list(zip(kinds, parts, strict=True))


def events(*contents: bytes) -> Make:
    def record(content: bytes) -> bytes:
        length = struct.pack("<Q", len(content))
        return length + struct.pack("<I", masked_crc32c(length)) + content + b"\x00" * 4

    return lambda path: path.write_bytes(b"".join(map(record, contents)))


def scalar(tag: str, value: float) -> bytes:
    return field(1, field(1, tag.encode()) + varint(2 << 3 | 5) + struct.pack("<f", value))


TABLES = (
    "CREATE TABLE runs (run_uuid, name)",
    "CREATE TABLE metrics (run_uuid, key, step, timestamp, value, is_nan)",
    "INSERT INTO runs VALUES ('a', 'a')",
    "INSERT INTO metrics VALUES ('a', 'eval/accuracy', 1, 1000000000001, 0.5, 0)",
    "INSERT INTO metrics VALUES ('a', 'eval/accuracy', 2, 1000000000002, 0.6, 0)",
)
MANY = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 100000000)"


def sqlite(*statements: str) -> Make:
    def make(path: Path) -> None:
        with closing(sqlite3.connect(path)) as store, store:
            for statement in statements:
                store.execute(statement)

    return make


def pages_that_name_one_page(path: Path) -> None:
    """Each inner page of the table of metrics names the page below it as every one
    of its children.
    """
    size, depth, width = 4096, 5, 400
    sqlite(*TABLES)(path)
    with closing(sqlite3.connect(path)) as store:
        (root,) = store.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'metrics'"
        ).fetchone()
    content = bytearray(path.read_bytes())
    leaf = bytes(content[(root - 1) * size : root * size])
    first_new = len(content) // size + 1
    for level in range(depth):
        child = first_new + level
        cells = b"".join(struct.pack(">I", child) + b"\x01" for _ in range(width))
        starts = [size - len(cells) + 5 * place for place in range(width)]
        page = struct.pack(">BHHHBI", 5, 0, width, starts[0], 0, child) + struct.pack(
            f">{width}H", *starts
        )
        page = page.ljust(size - len(cells), b"\x00") + cells
        place = (root if level == 0 else first_new + level - 1) - 1
        if place * size == len(content):
            content += page
        else:
            content[place * size : (place + 1) * size] = page
    content += leaf
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(content)


def hostile_files(share: float) -> dict[str, tuple[str, Make]]:
    """By what they are: a file's name, and what writes it.

    `share`: of the size at which they are worst.
    """
    most = int(share * MOST)

    def times(count: int) -> int:
        return int(share * count)

    def either(whole: int, part: int) -> int:
        """For what costs more than its size."""
        return whole if share == 1.0 else part

    def full(content: str, head: str = "", end: str = "") -> Make:
        """`content` again and again."""
        return text(content, int(share * LONG) // len(content.encode()), head, end)

    return {
        "newlines": ("a.csv", text("\n", most)),
        "newlines after a header": ("a.csv", text("\n", most, "step,accuracy\n")),
        "newlines after rows": ("a.csv", text("\n", most, "step,accuracy\n1,0.5\n2,0.6\n")),
        "newlines after objects": (
            "a.jsonl",
            text(
                "\n",
                either(MOST, 100_000),
                '{"step":1,"accuracy":0.5}\n{"step":2,"accuracy":0.6}\n',
            ),
        ),
        "newlines before a document": (
            "a.json",
            text("\n", most, end='[{"step":1,"accuracy":0.5}]'),
        ),
        "blanks": ("a.csv", full(" ", "step,accuracy\n1,0.5\n", "\n")),
        "new names in every row": ("a.jsonl", new_names(times(5_000))),
        "names of one rank": ("a.jsonl", names_of_one_rank(either(9_000, 2_000))),
        "spellings of one name": ("a.jsonl", spellings),
        "a header of many columns": ("a.csv", full("ab,", end="\n1\n2\n")),
        "a header of many columns between quotes": ("a.csv", full('"\n",ab,', end="\n1\n2\n")),
        "short rows below a wide header": (
            "a.csv",
            text(
                "1\n",
                either(1_500_000, 150),
                ",".join(f"eval_acc_{name}" for name in range(9_999)) + "\n",
            ),
        ),
        "a wide row": ("a.csv", full("ab,", "step,accuracy\n1,0.5\n")),
        "a wide row of lines between quotes": ("a.csv", full('ab,"\n",', "step,accuracy\n1,0.5\n")),
        "a panel of many runs": (
            "a.csv",
            text(
                "1" + ",1" * 8_000 + "\n",
                either(2_000, 40),
                head="Step," + ",".join(f"r{n} - acc,r{n} - acc__MIN" for n in range(4_000)) + "\n",
            ),
        ),
        "one endless line": ("a.log", full("step:1 - ab ")),
        "brackets": ("a.json", text("[", most)),
        "brackets that close": ("a.json", text(",[]", times(20 * MIB), head="[[]", end="]")),
        "objects": ("a.json", text(",{}", times(20 * MIB), head="[{}", end="]")),
        "objects inside a line of JSONL": (
            "a.jsonl",
            text(",{}", times(18 * MIB), head='{"step":1,"accuracy":0.5}\n{"a":[{}', end="]}\n"),
        ),
        "names inside one object": (
            "a.json",
            lambda p: p.write_text(json.dumps({f"n{n}": n for n in range(times(2_500_000))})),
        ),
        "a long name before many": (
            "a.json",
            lambda path: path.write_text(
                json.dumps(
                    [{"a" * (times(30 * MIB)): {f"n{n}": n for n in range(times(1_500_000))}}]
                )
            ),
        ),
        "other names in every line": (
            "a.jsonl",
            lambda path: path.write_text(
                "".join(
                    json.dumps({f"{row}-{n}": n for n in range(2_000)}) + "\n"
                    for row in range(times(512))
                )
            ),
        ),
        "a heading that continues in the next line": (
            "a.csv",
            lambda path: path.write_text(
                'step,"a\nb"' + "," * times(1_000_000) + "\n" + "1\n" * 600
            ),
        ),
        "objects in objects": (
            "a.jsonl",
            text('{"a":' * 50_000 + "1" + "}" * 50_000 + "\n", times(100)),
        ),
        "a number of many digits": ("a.json", text("1", most, '[{"step":1,"accuracy":', "}]")),
        "a part of many digits": ("a.json", text("1", most, '[{"step":1,"accuracy":0.', "}]")),
        "numbers without a bound": (
            "a.jsonl",
            lines(*[f'{{"step": {10**400}, "accuracy": 1e999}}'] * 100),
        ),
        "a long name": (
            "a.jsonl",
            later(
                lambda: text(
                    f'{{"step":1,"{"acc" * times(5_000_000)}":0.5,'
                    f'"{"acc" * (times(5_000_000) + 1)}":0.6}}\n'
                )
            ),
        ),
        "text of many runs": (
            "a.jsonl",
            later(
                lambda: lines(
                    *[f'{{"run":"r{n}","step":{n},"accuracy":0.5}}' for n in range(times(150_000))]
                )
            ),
        ),
        "NeMo-RL, a rule without an end": ("a.log", full("=", "Training Results:\n=====")),
        "NeMo-RL, a rule without an end behind a step": (
            "a.log",
            full("=", "===== Step 1/9 =====\nTraining Results:\n• Reward: 1\n===== Step 1/9 "),
        ),
        "open-instruct, corners": ("a.log", full("╭", "training_step: 1\n")),
        "open-instruct, titles": ("a.log", full("╭ Metrics ", "training_step: 1\n")),
        "open-instruct, sides": ("a.log", full("|", "training_step: 1\n╭ Metrics ╮\n", "x\n")),
        "open-instruct, blanks": ("a.log", full(" |", "training_step: 1\n╭ Metrics ╮\n", "x\n")),
        "open-instruct, one name": (
            "a.log",
            full("a", "training_step: 1\n╭ Metrics ╮\n|", "|\n╰\n"),
        ),
        "prime-rl, steps": ("a.log", full("Step 1 | ")),
        "prime-rl, evaluations": ("a.log", full("Evaluated a in 1s (", "Step 1 | Reward: 1\n")),
        "prime-rl, digits": ("a.log", full("1", "Step 1 | Reward: 1\nEvaluated a in ")),
        "prime-rl, capitals": ("a.log", full("A ", "Step 1 | Reward: 1 ")),
        "TRL, epochs": ("a.log", full("'epoch': 1 ", "{'a': ")),
        "TRL, openings": ("a.log", full("{'a': ", "'epoch': 1\n")),
        "TRL, quotes": ("a.log", full("'a", "{'a': 'epoch': 1 ", "}\n")),
        "verl, colons": ("a.log", full("a:", "step:1 - ")),
        "verl, items": ("a.log", full(" - a:", "step:1 - a:1 - b:2")),
        "verl, calls": ("a.log", full("np.", "step:1 - a:1 - b:2 - c:")),
        "OpenRLHF, quotes": ("a.log", full("'", "Global step 1: {'a': 1}\nGlobal step 2: {")),
        "HTML, cells": ("a.html", full("<td>", "<table><tr><th>step<th>acc<tr><td>1<td>0.5<tr>")),
        "HTML, cells without an end": (
            "a.html",
            full("<td ", "<table><tr><th>step<th>acc<tr><td>1<td>0.5<tr>"),
        ),
        "HTML, tables": ("a.html", full("<table><tr><td>1")),
        "HTML, headings": ("a.html", full("<th>a", "<table><tr><th>step<th>acc")),
        "notebook, cells": (
            "a.ipynb",
            full('{"outputs":[{"text":"a"}]},', '{"nbformat":4,"cells":[', "{}]}"),
        ),
        "notebook, tables": (
            "a.ipynb",
            full(
                '{"outputs":[{"data":{"text/html":"<table><tr><th>acc<tr><td>1<tr><td>1</table>"}}]},',
                '{"nbformat":4,"cells":[',
                "{}]}",
            ),
        ),
        "runs by their names": (
            "a.json",
            full('"r":{"s":[{"step":1,"acc":0.5}]},', '{"a":{"s":[{"acc":1}]},', '"z":{}}'),
        ),
        "numbers in numbers": ("a.json", text('{"1":{"reward":1},"2":', 400, end="0" + "}" * 400)),
        "lists in lists of runs": (
            "a.json",
            text('[{"history":[{"a":1}],"b":', 300, end="0" + "}]" * 300),
        ),
        "console, forms": (
            "a.log",
            lambda path: path.write_text(
                "".join(f"step {n} {n:b}x acc=0.5\n" for n in range(times(200_000)))
            ),
        ),
        "console, names in lines": (
            "a.log",
            text("step\nepoch\n", times(2_000_000), end="1\n2\n" * 10),
        ),
        "console, tables below each other": ("a.log", text("step a b\n1 2 3\n", times(1_000_000))),
        "console, headings": ("a.log", text("== Step 1 ==\na: 1\n", times(100_000))),
        "console, names of experiments": (
            "a.log",
            full("experiment_name: a\nseed: 1\n", "step=1 acc=0.5\nstep=2 acc=1\n"),
        ),
        "console, sides": ("a.log", text("|a|1|\n", times(300_000))),
        "console, a table of pairs": ("a.log", text("|acc|1|\n|step|1|\n", times(150_000))),
        "steps that fall and rise": (
            "a.csv",
            lambda path: path.write_text(
                "step,acc\n"
                + "".join(f"{n - 40 * (n % 8 == 0)},0.5\n" for n in range(times(300_000)))
            ),
        ),
        "runs of two rows": ("a.csv", text("0,0.5\n1,0.6\n", times(150_000), "step,acc\n")),
        "games of one step": (
            "a.jsonl",
            text('{"step":1,"win":true}\n{"step":1,"win":false}\n', times(200_000)),
        ),
        "MLflow, a metric without a step": (
            "accuracy",
            full("1", "1000000000001 0.5 1\n1000000000001 "),
        ),
        "W&B, LAST again and again": (
            "r.wandb",
            wandb((2, b"x" * 30_000), *[(4, b"x")] * times(60_000)),
        ),
        "W&B, LAST without FIRST": ("r.wandb", wandb(*[(4, b"")] * times(150_000))),
        "W&B, FIRST again and again": ("r.wandb", wandb(*[(2, b"x" * 30_000)] * times(1_900))),
        "W&B, brackets": (
            "r.wandb",
            later(lambda: wandb(*pieces(history("a", "[" + "[]," * times(5_000_000) + "1]")))),
        ),
        "W&B, brackets that do not close": ("r.wandb", wandb((1, history("a", "[" * 20_000)))),
        "W&B, new names": (
            "r.wandb",
            later(
                lambda: wandb(
                    *[
                        (1, history(f"eval_acc_{n}", "0.5") + history("_step", str(n)))
                        for n in range(times(300_000))
                    ]
                )
            ),
        ),
        "TensorBoard, tags": (
            "events.out.tfevents.1",
            later(
                lambda: events(
                    b"\x10\x01",
                    field(5, b"".join(scalar(f"t{n}", 0.5) for n in range(times(1_000_000)))),
                )
            ),
        ),
        "TensorBoard, new tags": (
            "events.out.tfevents.1",
            later(
                lambda: events(
                    *[
                        varint(2 << 3) + varint(n) + field(5, scalar(f"eval_acc_{n}", 0.5))
                        for n in range(either(100_000, 1_500))
                    ]
                )
            ),
        ),
        "TensorBoard, fields": (
            "events.out.tfevents.1",
            events(*[varint(2 << 3) + b"\x01"] * 5, b"\x10\x01" * times(5_000_000)),
        ),
        "SQLite, views": (
            "mlflow.db",
            sqlite(
                f"CREATE VIEW runs AS {MANY} SELECT 'a' AS run_uuid, 'a' AS name FROM n",
                f"CREATE VIEW metrics AS {MANY} SELECT 'a' AS run_uuid, printf('%.1000c', 'x') || "
                "i AS key, i AS step, i AS timestamp, 0.5 AS value, 0 AS is_nan FROM n",
            ),
        ),
        "SQLite, a view of the metrics": (
            "mlflow.db",
            sqlite(
                TABLES[0],
                f"CREATE VIEW metrics AS {MANY} SELECT 'a' AS run_uuid, 'accuracy' AS key, i AS "
                "step, i AS timestamp, 0.5 AS value, 0 AS is_nan FROM n",
            ),
        ),
        "SQLite, computed columns": (
            "mlflow.db",
            sqlite(
                TABLES[0],
                "CREATE TABLE metrics (run_uuid, key AS (hex(zeroblob(400000)) || step), "
                "step, timestamp, value, is_nan)",
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT "
                f"{times(20_000)}) INSERT INTO metrics SELECT 'a', i, i, 0.5, 0 FROM n",
            ),
        ),
        "SQLite, a virtual table": (
            "mlflow.db",
            sqlite(
                TABLES[0],
                (
                    "CREATE VIRTUAL TABLE metrics USING fts4(run_uuid, key, step, timestamp, "
                    "value, is_nan)"
                ),
            ),
        ),
        "SQLite, a long default": (
            "mlflow.db",
            sqlite(
                "CREATE TABLE metrics (run_uuid, step, timestamp, value, is_nan)",
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT "
                f"{times(20_000)}) INSERT INTO metrics SELECT 'a', i, i, 0.5, 0 FROM n",
                f"ALTER TABLE metrics ADD COLUMN key TEXT DEFAULT '{'x' * 500_000}'",
                TABLES[0],
            ),
        ),
        "SQLite, pages that name one page": ("mlflow.db", pages_that_name_one_page),
    }
