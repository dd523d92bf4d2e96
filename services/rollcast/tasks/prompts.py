"""Data sets as prompts: for training, held out from it, and downstream.

No text is in two of them.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rollcast.config.datasets import Part, RowsDataset
from rollcast.config.errors import UserError
from rollcast.config.rules_versions import SPLIT_RULES
from rollcast.config.tasks import Downstream, Tasks
from rollcast.tasks.contamination import EvaluatedQuestions
from rollcast.tasks.prompt import Prompt, digest, spelling
from rollcast.tasks.prompt_rows import DatasetRow, check_agreement, read_dataset


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


def load(tasks: Tasks, split_rules: int = SPLIT_RULES) -> PromptSplit:
    """Read every data set, hold out each part's prompts, and keep evaluated prompts out of
    training.

    `split_rules`: those under which the run began (`rollcast.config.rules_versions`).

    Which prompts are held out depends on `evaluation.seed` and each prompt's own text, so neither
    the order of the rows nor added rows move a prompt from one side to the other, except at the
    edge or if they spell it otherwise. Prompts count as the same if their texts are equal
    (`prompt.normalise`), regardless of the template around them: the first data set that has one
    keeps it. What a downstream or held-out prompt asks, in whatever spelling
    (`rollcast.tasks.contamination`), leaves training. Training prompts keep the order of the data
    sets.

    Raises UserError for a source that cannot be read, a row without a needed field, two rows that
    give one prompt different answers, or too few rows.
    """
    skipped: Counter[str] = Counter()
    downstream = {item.dataset.name: _downstream(item, tasks, skipped) for item in tasks.downstream}
    evaluated = EvaluatedQuestions()
    for rows in downstream.values():
        evaluated.add([row.question for row in rows.values()])
    downstream_keys = {key for rows in downstream.values() for key in rows}
    parts = _kept_rows(
        tasks, downstream_keys, evaluated if split_rules > 1 else EvaluatedQuestions(), skipped
    )
    train, held_out = _hold_out(tasks, parts, split_rules)
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
) -> list[dict[str, DatasetRow]]:
    """The rows of each part, by their keys, that neither a row before nor a downstream set asks."""
    rows_by_key: dict[str, DatasetRow] = {}
    parts = []
    for dataset_part in tasks.parts:
        rows: dict[str, DatasetRow] = {}
        for dataset_row in read_dataset(
            dataset_part.dataset, tasks, tasks.held_out_prompts(dataset_part), skipped
        ):
            if dataset_row.key in downstream_keys:
                skipped["downstream"] += 1
            elif evaluated.holds(dataset_row.question):
                skipped["contaminated"] += 1
            elif dataset_row.key in rows_by_key:
                check_agreement(rows_by_key[dataset_row.key], dataset_row)
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


def _hold_out(
    tasks: Tasks, parts: list[dict[str, DatasetRow]], split_rules: int
) -> tuple[list[DatasetRow], list[DatasetRow]]:
    """The rows to train on, and those that each part holds out."""
    spellings = Counter(
        spelled_row.question.main
        for rows in parts
        for spelled_row in rows.values()
        if split_rules > 1
    )
    train: list[DatasetRow] = []
    held_out: list[DatasetRow] = []
    for number, (dataset_part, rows) in enumerate(zip(tasks.parts, parts, strict=True)):
        num_held_out = tasks.held_out_prompts(dataset_part)
        _check_size(len(rows), num_held_out, f"tasks.dataset.parts.{number}", dataset_part)
        held_out_keys = _draw_keys(rows, num_held_out, tasks.evaluation.seed, spellings)
        train += [training_row for key, training_row in rows.items() if key not in held_out_keys]
        held_out += [held_out_row for key, held_out_row in rows.items() if key in held_out_keys]
    return train, held_out


def check_prompts(split: PromptSplit, prompts_per_step: int) -> None:
    """Raises UserError if a step would hold a prompt twice."""
    if len(split.train) < prompts_per_step:
        raise UserError(
            f"recipe.prompts_per_step = {prompts_per_step}: there are only {len(split.train)} "
            "training prompts, and a step would hold one twice; lower it or use more data"
        )


def _check_size(num_rows: int, num_held_out: int, field: str, dataset_part: Part) -> None:
    """Raises UserError if too few rows are left for training."""
    if not num_rows and isinstance(dataset_part.dataset, RowsDataset):
        source = dataset_part.dataset.path or dataset_part.dataset.mapping
        raise UserError(
            f"tasks.dataset.path = {source}: holds no rows that could be asked; give one with rows"
        )
    if num_rows <= num_held_out:
        setting = (
            "tasks.evaluation.num_prompts" if dataset_part.held_out is None else f"{field}.held_out"
        )
        raise UserError(
            f"{setting} = {num_held_out}: data set {dataset_part.dataset.name!r} has only "
            f"{num_rows} different prompts and some must be left for training; lower it or add rows"
        )


def _draw_keys(
    by_key: dict[str, DatasetRow],
    count: int,
    seed: int,
    spellings: Mapping[bytes, int] = {},
) -> set[str]:
    """`count` keys by the seed and their prompts' own texts, first those that no other row spells
    otherwise.

    `spellings`: how many rows ask each question. Empty = it does not matter.
    """

    def order(key: str) -> tuple[bool, str, str]:
        """Rows of environments may share a text; their ids differ."""
        dataset_row = by_key[key]
        has_others = spellings.get(dataset_row.question.main, 1) > 1
        return (
            has_others,
            digest(f"{seed}/{spelling(dataset_row.prompt.text)}"),
            dataset_row.prompt.id,
        )

    return set(sorted(by_key, key=order)[:count])


def _downstream(item: Downstream, tasks: Tasks, skipped: Counter[str]) -> dict[str, DatasetRow]:
    rows: dict[str, DatasetRow] = {}
    for row in read_dataset(item.dataset, tasks, 0, skipped):
        check_agreement(rows.setdefault(row.key, row), row)
    if not rows:
        source = "check its source, and from_date and to_date if they are given"
        raise UserError(
            f"tasks.downstream: data set {item.dataset.name!r} holds no prompt; {source}"
        )
    if item.num_prompts is None or item.num_prompts >= len(rows):
        return rows
    drawn_keys = _draw_keys(rows, item.num_prompts, tasks.evaluation.seed)
    return {key: row for key, row in rows.items() if key in drawn_keys}
