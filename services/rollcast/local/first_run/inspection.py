"""Inspects what the user brings: the model's kind, size and context length; the data's kind, fields
and verifier.
"""

import importlib.util
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rollcast.config.datasets import (
    HuggingfaceDataset,
    JsonlDataset,
    MappingName,
    ParquetDataset,
    RowsDataset,
)
from rollcast.config.errors import UserError
from rollcast.memory.architecture import UncountedModelError
from rollcast.memory.model_file import folder_here, read_here
from rollcast.memory.text_model import known_length
from rollcast.memory.weight_shapes import find_model_shape
from rollcast.tasks.fields import Row, RowError, value
from rollcast.tasks.mappings import MAPPINGS
from rollcast.tasks.rows import read_rows

NOT_HERE = "not on this machine yet; `rollcast up` fetches it from the hub"
_UNITS = ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k"))
UNFIT_FOR_A_NAME = r"[:/\x00-\x1f\x7f]"
PROMPT_FIELDS = ("prompt", "question", "problem", "messages", "query", "instruction", "input")
ANSWER_FIELDS = (
    "answer",
    "solution",
    "ground_truth",
    "reward_model.ground_truth",
    "target",
    "final_answer",
    "label",
)
"""Names that TRL, verl and published sets use, the likeliest first."""


class NoPromptFieldError(UserError):
    """No field of the rows has a usual name of a prompt."""


@dataclass(frozen=True, slots=True)
class DataLook:
    kind: str
    path: str
    name: str
    """Label of the data set."""
    prompt_field: str
    answer_field: str | None
    """None = no field looks like an answer."""
    suits: str
    """The built-in verifier that suits the answers."""
    mapping: MappingName = "plain"
    """The ready mapping of a published set, which knows its fields."""

    @property
    def in_words(self) -> str:
        if self.mapping != "plain":
            return f"the mapping {self.mapping} knows its fields"
        return (
            f"prompts are in {self.prompt_field!r}, answers in {self.answer_field or 'no field'!r}"
        )


def look_at(data: str, prompt_field: str | None, answer_field: str | None) -> DataLook:
    """`data`: a file, or a set of the hub. Fields that are not given are looked for in the first
    rows.

    Raises UserError where nothing can be read, or no field looks like a prompt.
    """
    for mapping, dataset_mapping in MAPPINGS.items():
        if dataset_mapping.hub is not None and dataset_mapping.hub.path == data:
            return DataLook(
                "huggingface", data, mapping, "", None, dataset_mapping.verifier, mapping
            )
    dataset = _dataset(data)
    # Rows from which fields are guessed
    rows = [row for _, row in islice(read_rows(dataset, None, Counter()), 50)]
    if not rows:
        raise UserError(f"--data {data}: holds no rows; give a file with one JSON object a line")
    prompts = prompt_field or _first_field(rows, PROMPT_FIELDS)
    if prompts is None:
        raise NoPromptFieldError(
            f"--data {data}: none of its fields ({', '.join(map(repr, list(rows[0])[:10]))}) has a "
            "usual name of a prompt; say which it is with --prompt-field"
        )
    answers = answer_field or _first_field(
        rows, [name for name in ANSWER_FIELDS if name != prompts]
    )
    return DataLook(dataset.kind, data, dataset.name, prompts, answers, _suiting(rows, answers))


def _dataset(data: str) -> RowsDataset:
    path = Path(data).expanduser()
    stem = re.sub(UNFIT_FOR_A_NAME, "-", path.name.partition(".")[0])[:100] or "data"
    if path.suffix == ".parquet":
        return ParquetDataset(name=stem, path=path)
    if (
        path.exists()
        or path.suffix in (".jsonl", ".json", ".gz")
        or data.startswith((".", "/", "~"))
    ):
        return JsonlDataset(name=stem, path=path)
    return HuggingfaceDataset(name=stem, path=data)


def _first_field(rows: list[Row], names: Sequence[str]) -> str | None:
    """The first name under which every row has something."""
    return next(
        (name for name in names if all(_value(row, name) is not None for row in rows)), None
    )


def _value(row: Row, name: str) -> Any:
    try:
        return value(row, name)
    except RowError:
        return None


def _suiting(rows: list[Row], answers: str | None) -> str:
    """`math` where every answer is a number or LaTeX and math-verify is there, else `exact`."""
    if answers is None or importlib.util.find_spec("math_verify") is None:
        return "exact"
    for text in (str(_value(row, answers)) for row in rows):
        try:
            float(text.replace(",", "").replace("/", "").strip("$ "))
        except ValueError:
            if "\\" not in text:
                return "exact"
    return "math"


def model_in_words(path: str) -> str:
    """Class, size and context length, as far as its config.json and its files contain them.

    Raises UserError.
    """
    try:
        model_config = read_here(path)
    except OSError as error:
        raise UserError(f"model.path = {path}: cannot be read ({error.strerror})") from error
    if model_config is None:
        return NOT_HERE
    classes = model_config.get("architectures")
    length = known_length(model_config)
    name = str(classes[0]) if isinstance(classes, list) and classes else None
    context = None if length is None else f"context of {length:,} tokens"
    return (
        ", ".join(filter(None, (name, _size(path, model_config), context)))
        or "its config.json says neither class nor size"
    )


def _size(path: str, model_config: Mapping[str, Any]) -> str | None:
    """Parameters if the architecture is known, else the size of its weights on the disk."""
    try:
        model = find_model_shape(model_config, folder=folder_here(path))
        return f"{_short(model.num_parameters).strip()} parameters"
    except UncountedModelError:
        stored = sum(file.stat().st_size for file in Path(path).glob("*.safetensors"))
        return f"{_short(stored)}B of weights" if stored else None


def _short(number: int) -> str:
    size, unit = next(((size, unit) for size, unit in _UNITS if number >= size), (1, ""))
    return f"{number / size:.3g} {unit}"
