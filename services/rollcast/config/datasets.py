"""Settings of data sets: where rows come from and how they become prompts."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import DATASET_NAME, Settings

DatasetName = Annotated[str, Field(pattern=DATASET_NAME)]
"""Label of the data set in metrics, evaluations.jsonl and the forecaster's names; so it holds
neither `:` nor `/`."""

MappingName = Literal[
    "plain",
    "polaris-53k",
    "deepcoder",
    "gsm8k",
    "math-500",
    "aime-24",
    "livecodebench",
    "humaneval",
    "mbpp-plus",
    "knights-and-knaves",
]


class ArithmeticDataset(Settings):
    kind: Literal["arithmetic"] = "arithmetic"
    """Generated additions, answered with digit-wise worked steps."""
    name: DatasetName = "arithmetic"
    """Label of the data set in metrics."""
    max_digits: Annotated[int, Field(ge=1, le=12)] = 4
    """Largest number of digits of an operand; more digits are harder."""
    size: Annotated[int, Field(ge=1)] = 4_000
    """Number of distinct training prompts."""
    seed: int = 1
    """Seed by which the prompts are drawn."""


class CountdownDataset(Settings):
    kind: Literal["countdown"] = "countdown"
    """Generated: reach a target with some numbers, each used once. Every one has a solution."""
    name: DatasetName = "countdown"
    """Label of the data set in metrics."""
    numbers: tuple[Annotated[int, Field(ge=2)], Annotated[int, Field(le=6)]] = (3, 4)
    """Range of how many numbers are given; more are harder."""
    max_number: Annotated[int, Field(ge=5, le=1_000)] = 99
    """Largest given number; the smallest is 1."""
    max_target: Annotated[int, Field(ge=10, le=100_000)] = 999
    """Largest target; the smallest is 1."""
    size: Annotated[int, Field(ge=1)] = 10_000
    """Number of distinct training prompts."""
    seed: int = 1
    """Seed by which the prompts are drawn."""


class _Rows(Settings):
    """Settings of every data set made of rows."""

    name: DatasetName
    """Label of the data set in metrics."""
    mapping: MappingName = "plain"
    """How a row becomes a prompt: `plain` takes the two fields below, the others know the published
    set they name (docs/data.md lists them)."""
    prompt_field: str = "prompt"
    """Field of a plain row that holds the prompt: text, or a list of chat messages that ends with
    one by the user, as TRL and verl write it. `a.b` is field b of field a."""
    answer_field: str = "answer"
    """Field of a plain row that holds the reference answer. Your own verifiers get the whole row
    and do not need it."""
    verifier: str | None = None
    """Grader of completions: a built-in verifier, `./reward.py:grade` or `package.module:grade` (a
    function of your own, in the sandbox), one of tasks.verifiers, or one that an installed package
    adds. None = the mapping's; `exact` for plain rows."""
    template: str | None = None
    """Text put around the prompt, of a chat around its last message; `{prompt}` marks its place.
    None = the mapping's; nothing around plain rows."""
    environment: DatasetName | None = None
    """One of tasks.environments, in which every prompt of this set is answered; a row with a field
    `environment` names its own. None = one answer for each prompt, without tools."""
    from_date: date | None = None
    """First day of the contests whose tasks `livecodebench` asks, such as `2025-02-01`, after which
    a model has read nothing. None = from the first contest."""
    to_date: date | None = None
    """Last day of these contests, which belongs to them as in LiveCodeBench's own `--end_date`.
    None = to the last."""


class JsonlDataset(_Rows):
    kind: Literal["jsonl"] = "jsonl"
    """One JSON object per line."""
    path: Path
    """The file; one that ends in .gz is decompressed while it is read."""


class ParquetDataset(_Rows):
    kind: Literal["parquet"] = "parquet"
    """A Parquet file."""
    path: Path
    """The file."""


class HuggingfaceDataset(_Rows):
    kind: Literal["huggingface"] = "huggingface"
    """A data set of the Hugging Face hub, downloaded once into its cache."""
    path: str | None = None
    """Name on the hub, such as openai/gsm8k. None = the name under which the mapping's set is
    published."""
    config: str | None = None
    """Configuration (subset) of the data set. None = the mapping's, or the set's default."""
    split: str | None = None
    """Which split. None = the mapping's, or `train`."""
    revision: str | None = None
    """Commit or tag on the hub; naming one keeps a run repeatable. None = the newest."""


RowsDataset = JsonlDataset | ParquetDataset | HuggingfaceDataset
Dataset = Annotated[
    ArithmeticDataset | CountdownDataset | JsonlDataset | ParquetDataset | HuggingfaceDataset,
    Field(discriminator="kind"),
]


class Part(Settings):
    """One task of a mixture."""

    dataset: Dataset
    """Data of this part."""
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """The part's share of the prompts drawn, and of the mixture's pass rate, is weight / the sum of
    all weights. The paper's ratio of math to code is NOT FOUND; equal parts here."""
    held_out: Annotated[int, Field(ge=1)] | None = None
    """Held-out prompts of this part. None = `evaluation.num_prompts`."""


class Mixture(Settings):
    kind: Literal["mixture"] = "mixture"
    """Several tasks in one run, each with a curve of its own; the mixture's curve is their weighted
    mean."""
    name: DatasetName = "mixture"
    """Label of the whole mixture's curve in metrics."""
    parts: Annotated[tuple[Part, ...], Field(min_length=2, max_length=64)]
    """The tasks. Prompts are drawn in proportion to their weights in every stretch of the run."""
