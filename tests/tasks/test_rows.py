"""Sources of rows: compressed lines, Parquet, the hub; broken ones are one sentence."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rollcast.config.datasets import HuggingfaceDataset, JsonlDataset, ParquetDataset, RowsDataset
from rollcast.config.errors import UserError
from rollcast.config.run import parse_run_config
from rollcast.config.tasks import Evaluation, Tasks
from rollcast.tasks import rows
from rollcast.tasks.mappings import MAPPINGS
from rollcast.tasks.prompts import load
from rollcast.tasks.rows import read_rows

ROWS: list[dict[str, Any]] = [
    {"q": f"question {i}", "truth": {"answer": i, "note": None}} for i in range(200)
]

READ_FROM_THE_HUB = """
import time
time.sleep = lambda seconds: None  # between the library's own tries
from rollcast.config.datasets import HuggingfaceDataset
from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.tasks.prompts import load
for path in (None, "nowhere/gsm8k"):
    try:
        load(Tasks(dataset=HuggingfaceDataset(name="d", path=path, mapping="gsm8k")))
    except UserError as error:
        print(error.exit_code, " ".join(str(error).splitlines()))
"""


def rows_of(dataset: RowsDataset) -> list[Any]:
    return [row for _, row in read_rows(dataset, None, Counter())]


def test_parquet_and_compressed_lines_hold_the_same_rows(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "rows.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in ROWS)
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet", row_group_size=30
    )
    lines = rows_of(JsonlDataset(name="d", path=tmp_path / "rows.jsonl.gz"))
    table = rows_of(ParquetDataset(name="d", path=tmp_path / "rows.parquet"))
    assert lines == table == ROWS


def test_a_line_may_have_the_longest_length_and_no_byte_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n')
    dataset = JsonlDataset(name="d", path=path)
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", len('{"a": 1}\n'))
    assert rows_of(dataset) == [{"a": 1}]
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", len('{"a": 1}'))
    with pytest.raises(UserError, match="line 1: longer than 8 bytes"):
        rows_of(dataset)


def test_a_field_of_a_field_is_named_with_a_dot(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    dataset = ParquetDataset(
        name="d",
        path=tmp_path / "rows.parquet",
        prompt_field="q",
        answer_field="truth.answer",
        verifier="exact",
    )
    split = load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=5)))
    assert {prompt.text: prompt.reference for prompt in split.train + split.held_out} == {
        row["q"]: str(row["truth"]["answer"]) for row in ROWS
    }


def test_an_answer_that_is_no_json_value_is_named(tmp_path: Path) -> None:
    table = pyarrow.table({"prompt": ["a", "b"], "answer": [b"\xff", b"\xfe"]})
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(
        UserError, match=r"rows\.parquet, row 1: the answer is no JSON value but bytes"
    ):
        load(Tasks(dataset=ParquetDataset(name="d", path=tmp_path / "rows.parquet")))


@pytest.mark.parametrize("damage", ["cut", "garbage", "empty", "absent", "folder"])
@pytest.mark.parametrize("kind", [JsonlDataset, ParquetDataset])
def test_a_broken_file_is_one_sentence(kind: type[Any], damage: str, tmp_path: Path) -> None:
    path = tmp_path / ("rows.jsonl.gz" if kind is JsonlDataset else "rows.parquet")
    if kind is JsonlDataset:
        with gzip.open(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in ROWS)
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    whole = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(whole[: len(whole) // 2])
        case "garbage":
            path.write_bytes(whole[:10] + bytes(reversed(whole[10:])))
        case "empty":
            path.write_bytes(b"")
        case "absent":
            path.unlink()
        case "folder":
            path.unlink()
            path.mkdir()
    with pytest.raises(UserError, match=str(path)) as caught:
        load(Tasks(dataset=kind(name="d", path=path, prompt_field="q", answer_field="truth")))
    assert "\n" not in str(caught.value)


# The hub: a folder of files is read by the same library call as a name on it


def test_a_set_of_the_hub_is_read_by_name_configuration_and_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "set"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text(
            "".join(
                json.dumps({"question": f"{split} {i}", "answer": f"#### {i}"}) + "\n"
                for i in range(4)
            )
        )
    (folder / "README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - {split: train, path: train.jsonl}\n  - {split: test, path: test.jsonl}\n---\n"
    )
    for split in ("train", "test"):
        dataset = HuggingfaceDataset(
            name="d", path=str(folder), config="main", split=split, mapping="gsm8k"
        )
        found = load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1)))
        prompts = found.train + found.held_out
        assert sorted(prompt.text.splitlines()[0] for prompt in prompts) == [
            f"{split} {i}" for i in range(4)
        ]
    with pytest.raises(
        UserError, match=r"split 'nonsense' cannot be loaded from the Hugging Face hub"
    ) as caught:
        load(
            Tasks(
                dataset=HuggingfaceDataset(
                    name="d", path=str(folder), split="nonsense", mapping="gsm8k"
                )
            )
        )
    assert "\n" not in str(caught.value)


def test_a_hub_out_of_reach_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import datasets.config

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    with pytest.raises(UserError, match=r"openai/gsm8k.*within reach") as caught:
        load(Tasks(dataset=HuggingfaceDataset(name="d", mapping="gsm8k")))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2, "offline by the user's own word"


def test_a_hub_in_trouble_may_be_tried_again_and_a_wrong_name_not(tmp_path: Path) -> None:
    """A process of its own, against a server of this machine: the library reads its settings when
    it is imported.
    """

    class Hub(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(404 if "nowhere" in self.path else 503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD = answer  # noqa: N815  (named by http.server)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", READ_FROM_THE_HUB],
        env=os.environ
        | settings
        | {"HF_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    server.shutdown()
    server.server_close()
    assert done.returncode == 0, done.stderr
    trouble, nowhere = done.stdout.splitlines()
    assert (trouble[0], "openai/gsm8k" in trouble) == ("1", True)
    assert (nowhere[0], "nowhere/gsm8k" in nowhere) == ("2", True)


def test_a_library_that_is_not_installed_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"needs the package datasets; install rollcast\[data\]"):
        load(Tasks(dataset=HuggingfaceDataset(name="d", mapping="gsm8k")))


def test_every_ready_mapping_says_where_its_set_is_published() -> None:
    assert all(mapping.hub is not None for mapping in MAPPINGS.values())


@pytest.mark.parametrize(
    ("dataset", "complaint"),
    [
        ({"kind": "huggingface", "name": "d"}, "path is missing"),
        (
            {"kind": "jsonl", "name": "d", "path": "x", "mapping": "gsm8k", "answer_field": "a"},
            "tasks.dataset.answer_field = 'a' is wrong: .*remove it",
        ),
        ({"kind": "jsonl", "name": "a:b", "path": "x"}, "name = 'a:b'"),
        ({"kind": "jsonl", "name": "d", "path": "x", "mapping": "gsm8"}, "mapping = 'gsm8'"),
    ],
)
def test_contradictions_are_found_in_the_run_file(dataset: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        parse_run_config(
            {"run": "r", "model": {"path": "m"}, "tasks": {"dataset": dataset}}, source="test"
        )
