"""Data sets as prompts, split into training and held-out prompts that share no text."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rollcast.config.errors import UserError
from rollcast.config.tasks import ArithmeticDataset, JsonlDataset, Tasks
from rollcast.tasks.arithmetic import distinct_additions, prompt_text
from rollcast.tasks.verifiers import find_verifier

MAX_LINE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    """Stable across runs: made from the data set's name and the normalised text."""
    dataset: str
    text: str
    reference: str
    """JSON text, given to the verifier."""
    verifier: str


@dataclass(frozen=True, slots=True)
class Split:
    train: list[Prompt]
    held_out: list[Prompt]
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows of the file left out, by reason (duplicate, empty, oversized)."""


def load(tasks: Tasks, *, seed: int = 0) -> Split:
    """Read the data set and hold out `tasks.evaluation.num_prompts` prompts.

    Which ones depends on the seed and each prompt's own text, so neither the order of the rows nor added rows move a
    prompt from one side to the other except at the edge. No held-out prompt equals a training prompt after
    normalisation. Training prompts keep the order of the data set.

    Raises UserError for a file that cannot be read, a row without a needed field, or too few rows.
    """
    skipped: Counter[str] = Counter()
    by_key: dict[str, Prompt] = {}
    for prompt in _read(tasks, skipped):
        key = normalise(prompt.text)
        if key in by_key:
            skipped["duplicate"] += 1
        else:
            by_key[key] = prompt
    wanted = tasks.evaluation.num_prompts
    if len(by_key) <= wanted:
        raise UserError(
            f"tasks.evaluation.num_prompts = {wanted}: data set {tasks.dataset.name!r} has only {len(by_key)} "
            "different prompts and some must be left for training; lower it or add rows"
        )
    held_out = set(sorted(by_key, key=lambda key: _digest(f"{seed}/{key}"))[:wanted])
    return Split(
        train=[prompt for key, prompt in by_key.items() if key not in held_out],
        held_out=[prompt for key, prompt in by_key.items() if key in held_out],
        skipped=dict(skipped),
    )


def normalise(text: str) -> str:
    """The text under which two prompts count as the same: compatibility forms, case and white space do not matter."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _prompt(dataset: str, text: str, reference: object, verifier: str) -> Prompt:
    identity = _digest(f"{dataset}/{normalise(text)}")[:16]
    return Prompt(identity, dataset, text, json.dumps(reference), verifier)


def _read(tasks: Tasks, skipped: Counter[str]) -> Iterator[Prompt]:
    if isinstance(tasks.dataset, ArithmeticDataset):
        return _additions(tasks.dataset, tasks.dataset.size + tasks.evaluation.num_prompts)
    return _rows(tasks.dataset, skipped)


def _additions(dataset: ArithmeticDataset, count: int) -> Iterator[Prompt]:
    for a, b in distinct_additions(dataset, count):
        yield _prompt(dataset.name, prompt_text(a, b), str(a + b), "arithmetic")


def _rows(dataset: JsonlDataset, skipped: Counter[str]) -> Iterator[Prompt]:
    find_verifier(dataset.verifier)
    if "{prompt}" not in dataset.template:
        raise UserError(f"tasks.dataset.template = {dataset.template!r}: must contain {{prompt}}; add it")
    try:
        with dataset.path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
                where = f"data set {dataset.path}, line {number}"
                if len(line) > MAX_LINE_BYTES:
                    raise UserError(f"{where}: longer than {MAX_LINE_BYTES} bytes; shorten or remove it")
                if not line.strip():
                    skipped["empty"] += 1
                    continue
                row = _parse(line, where)
                text, answer = _field(row, dataset.prompt_field, where), _field(row, dataset.answer_field, where)
                yield _prompt(dataset.name, dataset.template.replace("{prompt}", str(text)), answer, dataset.verifier)
    except OSError as error:
        raise UserError(
            f"tasks.dataset.path = {dataset.path}: cannot be read ({error.strerror}); give the path of a JSONL file"
        ) from error


def _parse(line: bytes, where: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not a JSON object ({error}); mend or remove it") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: holds {type(row).__name__}, needs a JSON object; mend or remove it")
    return row


def _field(row: dict[str, object], name: str, where: str) -> object:
    value = row.get(name)
    if value is None or value == "":
        raise UserError(
            f"{where}: field {name!r} is missing or empty (the row has {', '.join(map(repr, list(row)[:10]))}); "
            "add it, or name the right one in tasks.dataset.prompt_field / answer_field"
        )
    return value
