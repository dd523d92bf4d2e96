"""Data sets as prompts: for training, held out from it, and downstream; no text is
in two of them.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rollcast.config.datasets import ArithmeticDataset, CountdownDataset, Dataset, Part, RowsDataset
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.config.rewarding import environment_rewards, find_reward_conflict
from rollcast.config.rules_versions import SPLIT_RULES
from rollcast.config.tasks import MAX_REFERENCE_CHARACTERS, Downstream, Tasks
from rollcast.tasks import arithmetic, countdown
from rollcast.tasks.chats import Chat, flat, make_chat, with_last
from rollcast.tasks.contamination import (
    COUNTDOWN,
    EvaluatedQuestions,
    PromptQuestion,
    episode,
    single,
)
from rollcast.tasks.contest_dates import why_outside_the_window
from rollcast.tasks.environment_names import find_environment
from rollcast.tasks.fields import Row, RowError, plain_values, value
from rollcast.tasks.mappings import Mapping as RowMapping
from rollcast.tasks.mappings import resolve_mapping
from rollcast.tasks.rows import read_rows
from rollcast.tasks.same_answers import same_answer
from rollcast.tasks.verifiers import CODE, is_built_in
from rollcast.telemetry.logging import get_logger

MAX_SHOWN_CHARACTERS = 60
"""Longest answer in a message."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Prompt:
    id: str
    """Stable across runs: made from the data set's name and the text."""
    dataset: str
    text: str
    """The texts of a chat's messages, one after the other."""
    reference: str
    """JSON text, given to the verifier, or to the environment."""
    verifier: str
    """Empty = the environment rewards."""
    chat: Chat = ()
    """Its messages, unless it is a single one by the user."""
    environment: str = ""
    """The environment in which it is answered; `reference` is then the whole row. Empty = one
    answer, without tools."""
    answer: str = ""
    """JSON text for a built-in verifier of an episode. Empty = the reference is for the
    verifier."""

    @property
    def messages(self) -> Chat:
        return self.chat or make_chat(self.text)

    @property
    def verifier_reference(self) -> str:
        """JSON text that its verifier gets."""
        return self.answer or self.reference


@dataclass(frozen=True, slots=True)
class PromptSplit:
    train: list[Prompt]
    held_out: list[Prompt]
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows left out, by reason (duplicate, empty, oversized, downstream, contaminated, other_date,
    no_date)."""
    downstream: dict[str, list[Prompt]] = field(default_factory=dict)
    """By name of the downstream set."""
    contaminated: frozenset[str] = frozenset()
    """Ids of training prompts that ask what an evaluated prompt asks. Only a run that began under
    the first rules has any; later ones leave such rows out."""


@dataclass(frozen=True, slots=True)
class _DatasetRow:
    """One row of a data set."""

    key: str
    """The normalised bare text."""
    prompt: Prompt
    question: PromptQuestion
    answer: Any = None
    """What no other row of the same text may contradict; None = rows of this kind have no such
    answer."""
    where: str = ""
    """The row, for complaints."""


def load(tasks: Tasks, split_rules: int = SPLIT_RULES) -> PromptSplit:
    """Read every data set, hold out each part's prompts, and keep evaluated prompts out of
    training.

    `split_rules`: those under which the run began (`rollcast.config.rules_versions`).

    Which prompts are held out depends on `evaluation.seed` and each prompt's own text, so neither
    the order of the rows nor added rows move a prompt from one side to the other, except at the
    edge or if they spell it otherwise. Prompts count as the same if their texts are equal
    (`normalise`), regardless of the template around them: the first data set that has one keeps it.
    What a downstream or held-out prompt asks, in whatever spelling
    (`rollcast.tasks.contamination`), leaves training. Training prompts keep the order of the data
    sets.

    Raises UserError for a source that cannot be read, a row without a needed field, two rows that
    give one prompt different answers, or too few rows.
    """
    skipped: Counter[str] = Counter()
    seed = tasks.evaluation.seed
    downstream = {
        item.dataset.name: _downstream(item, tasks, seed, skipped) for item in tasks.downstream
    }
    evaluated = EvaluatedQuestions()
    for rows in downstream.values():
        evaluated.add([row.question for row in rows.values()])
    downstream_keys = {key for rows in downstream.values() for key in rows}
    parts = _kept_rows(
        tasks, downstream_keys, evaluated if split_rules > 1 else EvaluatedQuestions(), skipped
    )
    spellings = Counter(
        spelled_row.question.main
        for rows in parts
        for spelled_row in rows.values()
        if split_rules > 1
    )
    train: list[_DatasetRow] = []
    held_out: list[_DatasetRow] = []
    for number, (dataset_part, rows) in enumerate(zip(tasks.parts, parts, strict=True)):
        held_out_keys = _choose_held_out(
            rows,
            tasks.held_out_prompts(dataset_part),
            f"tasks.dataset.parts.{number}",
            dataset_part,
            seed,
            spellings,
        )
        train += [training_row for key, training_row in rows.items() if key not in held_out_keys]
        held_out += [held_out_row for key, held_out_row in rows.items() if key in held_out_keys]
    evaluated.add([evaluated_row.question for evaluated_row in held_out])
    evaluated.exclude_common(trained_row.question for trained_row in train)
    clean = [
        candidate_row for candidate_row in train if not evaluated.holds(candidate_row.question)
    ]
    contaminated = {train_row.prompt.id for train_row in train} - {
        clean_row.prompt.id for clean_row in clean
    }
    if split_rules > 1:
        skipped["contaminated"] += len(train) - len(clean)
        train = clean
        contaminated = set()
    if not train:
        raise UserError(
            "tasks.dataset: each training prompt asks what a held-out prompt asks, in another "
            "spelling; use more data"
        )
    return PromptSplit(
        [kept_row.prompt for kept_row in train],
        [test_row.prompt for test_row in held_out],
        dict(+skipped),
        {name: [row.prompt for row in rows.values()] for name, rows in downstream.items()},
        frozenset(contaminated),
    )


def _kept_rows(
    tasks: Tasks,
    downstream_keys: Collection[str],
    evaluated: EvaluatedQuestions,
    skipped: Counter[str],
) -> list[dict[str, _DatasetRow]]:
    """The rows of each part, by their keys, that neither a row before nor a downstream set asks."""
    rows_by_key: dict[str, _DatasetRow] = {}
    parts = []
    for dataset_part in tasks.parts:
        rows: dict[str, _DatasetRow] = {}
        for dataset_row in _read(
            dataset_part.dataset, tasks, tasks.held_out_prompts(dataset_part), skipped
        ):
            if dataset_row.key in downstream_keys:
                skipped["downstream"] += 1
            elif evaluated.holds(dataset_row.question):
                skipped["contaminated"] += 1
            elif dataset_row.key in rows_by_key:
                _check_agreement(rows_by_key[dataset_row.key], dataset_row)
                skipped["duplicate"] += 1
            else:
                rows_by_key[dataset_row.key] = rows[dataset_row.key] = dataset_row
        parts.append(rows)
    evaluated.exclude_common(kept_row.question for kept_row in rows_by_key.values())
    clean_parts = [
        {key: part_row for key, part_row in rows.items() if not evaluated.holds(part_row.question)}
        for rows in parts
    ]
    skipped["contaminated"] += len(rows_by_key) - sum(map(len, clean_parts))
    return clean_parts


def check_prompts(split: PromptSplit, prompts_per_step: int) -> None:
    """Raises UserError if a step would hold a prompt twice."""
    if len(split.train) < prompts_per_step:
        raise UserError(
            f"recipe.prompts_per_step = {prompts_per_step}: there are only {len(split.train)} "
            "training prompts, and a "
            "step would hold one twice; lower it or use more data"
        )


def _choose_held_out(
    by_key: dict[str, _DatasetRow],
    num_held_out: int,
    field: str,
    dataset_part: Part,
    seed: int,
    spellings: Mapping[bytes, int],
) -> set[str]:
    if not by_key and isinstance(dataset_part.dataset, RowsDataset):
        source = dataset_part.dataset.path or dataset_part.dataset.mapping
        raise UserError(
            f"tasks.dataset.path = {source}: holds no rows that could be asked; give one with rows"
        )
    if len(by_key) <= num_held_out:
        setting = (
            "tasks.evaluation.num_prompts" if dataset_part.held_out is None else f"{field}.held_out"
        )
        raise UserError(
            f"{setting} = {num_held_out}: data set {dataset_part.dataset.name!r} has only "
            f"{len(by_key)} different "
            "prompts and some must be left for training; lower it or add rows"
        )
    return _draw_keys(by_key, num_held_out, seed, spellings)


def _draw_keys(
    by_key: dict[str, _DatasetRow],
    count: int,
    seed: int,
    spellings: Mapping[bytes, int] | None = None,
) -> set[str]:
    """`count` keys by the seed and their prompts' own texts, first those that no other row spells
    otherwise.

    `spellings`: how many rows ask each question. None = it does not matter.
    """

    def order(key: str) -> tuple[bool, str, str]:
        """Rows of environments may share a text; their ids differ."""
        dataset_row = by_key[key]
        has_others = spellings is not None and spellings.get(dataset_row.question.main, 1) > 1
        return (
            has_others,
            _digest(f"{seed}/{spelling(dataset_row.prompt.text)}"),
            dataset_row.prompt.id,
        )

    return set(sorted(by_key, key=order)[:count])


def _downstream(
    item: Downstream, tasks: Tasks, seed: int, skipped: Counter[str]
) -> dict[str, _DatasetRow]:
    rows: dict[str, _DatasetRow] = {}
    for row in _read(item.dataset, tasks, 0, skipped):
        _check_agreement(rows.setdefault(row.key, row), row)
    if not rows:
        source = "check its source, and from_date and to_date if they are given"
        raise UserError(
            f"tasks.downstream: data set {item.dataset.name!r} holds no prompt; {source}"
        )
    if item.num_prompts is None or item.num_prompts >= len(rows):
        return rows
    drawn_keys = _draw_keys(rows, item.num_prompts, seed)
    return {key: row for key, row in rows.items() if key in drawn_keys}


def _check_agreement(first: _DatasetRow, second: _DatasetRow) -> None:
    """Raises UserError if two rows of one prompt, graded alike, give different answers."""
    if first.prompt.verifier != second.prompt.verifier or None in (first.answer, second.answer):
        return
    if not same_answer(first.answer, second.answer):
        raise UserError(
            f"{first.where} and {second.where}: they ask the same and give different answers, "
            f"{_shorten_answer(first.answer)} and {_shorten_answer(second.answer)}; remove one of "
            "the two rows"
        )


def _shorten_answer(answer: Any) -> str:
    answer_text = repr(answer)
    return (
        answer_text
        if len(answer_text) <= MAX_SHOWN_CHARACTERS
        else f"{answer_text[:MAX_SHOWN_CHARACTERS]}..."
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _prompt(dataset: str, messages: Chat, reference: object, verifier: str) -> Prompt:
    text = flat(messages)
    identity = _identity(dataset, spelling(text))
    return Prompt(
        identity,
        dataset,
        text,
        json.dumps(reference),
        verifier,
        chat=messages if len(messages) > 1 else (),
    )


def _identity(dataset: str, text: str) -> str:
    return _digest(f"{dataset}/{text}")[:16]


def _read(
    dataset: Dataset, tasks: Tasks, evaluated: int, skipped: Counter[str]
) -> Iterator[_DatasetRow]:
    """Every row. `evaluated`: prompts that generated sets make besides `size`."""
    match dataset:
        case ArithmeticDataset():
            for a, b in arithmetic.distinct_additions(dataset, dataset.size + evaluated):
                chat = make_chat(arithmetic.prompt_text(a, b))
                prompt = _prompt(dataset.name, chat, str(a + b), "arithmetic")
                yield _DatasetRow(normalise(prompt.text), prompt, single(chat, answer=str(a + b)))
        case CountdownDataset():
            for numbers, target in countdown.distinct_puzzles(dataset, dataset.size + evaluated):
                chat = make_chat(countdown.prompt_text(numbers, target))
                reference = {"numbers": numbers, "target": target}
                puzzle = countdown.prompt_text(
                    tuple(sorted(numbers)), target
                )  # the same one in any order
                prompt = _prompt(dataset.name, chat, reference, COUNTDOWN)
                yield _DatasetRow(normalise(puzzle), prompt, single(chat, COUNTDOWN, reference))
        case _:
            yield from _with_own_ids(_rows(dataset, tasks, skipped))


def _with_own_ids(rows: Iterator[_DatasetRow]) -> Iterator[_DatasetRow]:
    """Prompts that differ only in details that ids ignore, such as case: all except the first get
    an id of the whole text."""
    keys: dict[str, str] = {}
    for dataset_row in rows:
        prompt = dataset_row.prompt
        if keys.setdefault(prompt.id, dataset_row.key) != dataset_row.key:
            dataset_row = replace(
                dataset_row,
                prompt=replace(prompt, id=_identity(prompt.dataset, f"exactly/{prompt.text}")),
            )
        yield dataset_row


def _rows(dataset: RowsDataset, tasks: Tasks, skipped: Counter[str]) -> Iterator[_DatasetRow]:
    mapping = resolve_mapping(dataset)
    if "{prompt}" not in mapping.template:
        raise UserError(
            f"tasks.dataset.template = {mapping.template!r}: must contain {{prompt}}; add it"
        )
    oversized = 0
    for where, row in read_rows(dataset, mapping.hub, skipped):
        if reason := why_outside_the_window(row, dataset.from_date, dataset.to_date):
            skipped[reason] += 1
            continue
        environment = find_environment(row, dataset, tasks.environments, where)
        try:
            bare = mapping.prompt(row)
            if environment is not None:
                dataset_row = _episode(dataset, mapping, environment, row, bare, where)
            else:
                dataset_row = _single(dataset, mapping, row, bare, where)
        except RowError as error:
            raise UserError(f"{where}: {error}") from None
        if (
            max(len(dataset_row.prompt.reference), len(dataset_row.prompt.answer))
            > MAX_REFERENCE_CHARACTERS
        ):
            oversized += 1
        else:
            yield dataset_row
    if oversized:
        skipped["oversized"] += oversized
        log.warning(
            "prompts are left out, because their references are too long",
            dataset=dataset.name,
            prompts=oversized,
            longest_mib=MAX_REFERENCE_CHARACTERS >> 20,
        )


def _single(
    dataset: RowsDataset, mapping: RowMapping, row: Row, bare: Chat, where: str
) -> _DatasetRow:
    """A row that is answered once."""
    messages = with_last(bare, mapping.template)
    is_own = not is_built_in(mapping.verifier)
    reference = {"prompt": flat(messages)} | plain_values(row) if is_own else mapping.reference(row)
    try:
        prompt = _prompt(dataset.name, messages, reference, mapping.verifier)
    except (TypeError, ValueError, RecursionError):
        raise _no_json(where, reference) from None
    answer = _answer(dataset, mapping.verifier, row, reference)
    question = single(bare, mapping.verifier, answer)
    return _DatasetRow(normalise(flat(bare)), prompt, question, answer, where)


def _episode(
    dataset: RowsDataset,
    mapping: RowMapping,
    environment: EnvironmentSettings,
    row: Row,
    bare: Chat,
    where: str,
) -> _DatasetRow:
    """A row that is answered in an environment.

    Rows of one text are different prompts if they differ in anything.
    """
    if sentence := find_reward_conflict(environment, dataset):
        raise UserError(f"{where}: reward of environment {environment.name!r}: {sentence}")
    is_rewarded = environment_rewards(environment, dataset)
    answer: Any = None
    if not is_rewarded and is_built_in(mapping.verifier):
        answer = mapping.reference(row)
    messages = with_last(bare, mapping.template)
    values = plain_values(row)
    row_reference = {"prompt": flat(messages)} | values
    try:
        prompt = _prompt(
            dataset.name, messages, row_reference, "" if is_rewarded else mapping.verifier
        )
        prompt = replace(
            prompt,
            id=_identity(dataset.name, f"{spelling(prompt.text)}/{prompt.reference}"),
            environment=environment.name,
            answer="" if answer is None else json.dumps(answer),
        )
    except (TypeError, ValueError, RecursionError):
        raise _no_json(where, row_reference if answer is None else answer) from None
    question = episode(
        bare, values, prompt.verifier, _answer(dataset, prompt.verifier, row, answer)
    )
    return _DatasetRow(
        f"{normalise(prompt.text)}\n{prompt.reference}", prompt, question, where=where
    )


def _no_json(where: str, answer: Any) -> UserError:
    return UserError(
        f"{where}: the answer is no JSON value but {type(answer).__name__}; convert it"
    )


def _answer(dataset: RowsDataset, verifier: str, row: Row, reference: Any) -> Any:
    """The row's answer: the reference, of a user's own verifier or environment the answer field.
    Tests of programs are not answers."""
    if is_built_in(verifier):
        return None if verifier == CODE else reference
    try:
        return value(row, dataset.answer_field)
    except RowError:
        return None


def normalise(text: str) -> str:
    """The text under which two prompts count as the same.

    Only what no reader can see does not matter: how an accent is encoded, line ends, blank lines
    around the text.
    """
    lines = [line.rstrip() for line in unicodedata.normalize("NFC", text).splitlines()]
    return "\n".join(lines).strip("\n")


def spelling(text: str) -> str:
    """The text without compatibility forms, case and white space: the basis of ids and of the
    choice of held-out prompts, so that both stay the same as in earlier runs. Different prompts may
    share one."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
