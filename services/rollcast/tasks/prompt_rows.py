"""Rows of a data set as prompts, each with its question and its answer."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rollcast.config.datasets import ArithmeticDataset, CountdownDataset, Dataset, RowsDataset
from rollcast.config.environments.settings import EnvironmentSettings
from rollcast.config.errors import UserError
from rollcast.config.rewarding import environment_rewards, find_reward_conflict
from rollcast.config.tasks import MAX_REFERENCE_CHARACTERS, Tasks
from rollcast.tasks import arithmetic, countdown
from rollcast.tasks.chats import Chat, flat, make_chat, with_last
from rollcast.tasks.contamination import COUNTDOWN, PromptQuestion, episode, single
from rollcast.tasks.contest_dates import why_outside_the_window
from rollcast.tasks.environment_names import find_environment
from rollcast.tasks.fields import Row, RowError, plain_values, shorten, value
from rollcast.tasks.mappings import Mapping as RowMapping
from rollcast.tasks.mappings import resolve_mapping
from rollcast.tasks.prompt import Prompt, make_prompt, make_prompt_id, normalise, spelling
from rollcast.tasks.rows import read_rows
from rollcast.tasks.same_answers import same_answer
from rollcast.tasks.verifiers import CODE, is_built_in
from rollcast.telemetry.logging import get_logger

log = get_logger()


@dataclass(frozen=True, slots=True)
class DatasetRow:
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


def read_dataset(
    dataset: Dataset, tasks: Tasks, evaluated: int, skipped: Counter[str]
) -> Iterator[DatasetRow]:
    """Every row. `evaluated`: prompts that generated sets make besides `size`."""
    match dataset:
        case ArithmeticDataset():
            for a, b in arithmetic.distinct_additions(dataset, dataset.size + evaluated):
                chat = make_chat(arithmetic.prompt_text(a, b))
                prompt = make_prompt(dataset.name, chat, str(a + b), "arithmetic")
                yield DatasetRow(normalise(prompt.text), prompt, single(chat, answer=str(a + b)))
        case CountdownDataset():
            for numbers, target in countdown.distinct_puzzles(dataset, dataset.size + evaluated):
                chat = make_chat(countdown.prompt_text(numbers, target))
                reference = {"numbers": numbers, "target": target}
                # The same puzzle in any order
                puzzle = countdown.prompt_text(tuple(sorted(numbers)), target)
                prompt = make_prompt(dataset.name, chat, reference, COUNTDOWN)
                yield DatasetRow(normalise(puzzle), prompt, single(chat, COUNTDOWN, reference))
        case _:
            yield from _with_own_ids(_rows(dataset, tasks, skipped))


def _with_own_ids(rows: Iterator[DatasetRow]) -> Iterator[DatasetRow]:
    """Prompts that differ only in details that ids ignore, such as case: all except the first get
    an id of the whole text."""
    keys: dict[str, str] = {}
    for dataset_row in rows:
        prompt = dataset_row.prompt
        if keys.setdefault(prompt.id, dataset_row.key) != dataset_row.key:
            dataset_row = replace(
                dataset_row,
                prompt=replace(prompt, id=make_prompt_id(prompt.dataset, f"exactly/{prompt.text}")),
            )
        yield dataset_row


def _rows(dataset: RowsDataset, tasks: Tasks, skipped: Counter[str]) -> Iterator[DatasetRow]:
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
) -> DatasetRow:
    """A row that is answered once."""
    messages = with_last(bare, mapping.template)
    is_own = not is_built_in(mapping.verifier)
    reference = {"prompt": flat(messages)} | plain_values(row) if is_own else mapping.reference(row)
    try:
        prompt = make_prompt(dataset.name, messages, reference, mapping.verifier)
    except (TypeError, ValueError, RecursionError):
        raise _no_json(where, reference) from None
    answer = _answer(dataset, mapping.verifier, row, reference)
    question = single(bare, mapping.verifier, answer)
    return DatasetRow(normalise(flat(bare)), prompt, question, answer, where)


def _episode(
    dataset: RowsDataset,
    mapping: RowMapping,
    environment: EnvironmentSettings,
    row: Row,
    bare: Chat,
    where: str,
) -> DatasetRow:
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
        prompt = make_prompt(
            dataset.name, messages, row_reference, "" if is_rewarded else mapping.verifier
        )
        prompt = replace(
            prompt,
            id=make_prompt_id(dataset.name, f"{spelling(prompt.text)}/{prompt.reference}"),
            environment=environment.name,
            answer="" if answer is None else json.dumps(answer),
        )
    except (TypeError, ValueError, RecursionError):
        raise _no_json(where, row_reference if answer is None else answer) from None
    question = episode(
        bare, values, prompt.verifier, _answer(dataset, prompt.verifier, row, answer)
    )
    return DatasetRow(
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


def check_agreement(first: DatasetRow, second: DatasetRow) -> None:
    """Raises UserError if two rows of one prompt, graded alike, give different answers."""
    if first.prompt.verifier != second.prompt.verifier or None in (first.answer, second.answer):
        return
    if not same_answer(first.answer, second.answer):
        raise UserError(
            f"{first.where} and {second.where}: they ask the same and give different answers, "
            f"{shorten(repr(first.answer))} and {shorten(repr(second.answer))}; remove one of "
            "the two rows"
        )
