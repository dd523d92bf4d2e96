"""Ready mappings: how a row of a published data set becomes a prompt, its reference and its
verifier.

Each is one entry of MAPPINGS. Field names are those of the data sets' own cards:

    polaris-53k        problem, answer                      POLARIS-Project/Polaris-Dataset-53K
    deepcoder          problem, tests, starter_code, ...    agentica-org/DeepCoder-Preview-Dataset
    gsm8k              question, answer ("... #### 18")     openai/gsm8k
    math-500           problem, answer                      HuggingFaceH4/MATH-500
    aime-24            problem, answer                      HuggingFaceH4/aime_2024
    livecodebench      question_content, starter_code,      lighteval/code_generation_lite
                       public_ and private_test_cases,      (the original set,
                       metadata                             livecodebench/code_generation_lite, is
                                                            a program, which the hub's library no
                                                            longer runs)
    humaneval          prompt, entry_point, test            openai/openai_humaneval
    mbpp-plus          prompt, test_list, test              evalplus/mbppplus
    knights-and-knaves quiz, names, solution                K-and-K/knights-and-knaves
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rollcast.config.datasets import MappingName, RowsDataset
from rollcast.config.rewarding import environment_rewards
from rollcast.config.tasks import Tasks
from rollcast.tasks import code_tests
from rollcast.tasks.chats import Chat, chat, make_chat
from rollcast.tasks.fields import Row, RowError, text, value

MATH_TEMPLATE = "{prompt}\n\nPut your final answer within \\boxed{}."
PROGRAM_TEMPLATE = (
    "{prompt}\n\nWrite a Python program that reads standard input and prints its answer, or, where "
    "starter code is "
    "given, complete that. Give the whole program in one ```python code block."
)
FUNCTION_TEMPLATE = (
    "{prompt}\n\nGive the whole function, imports included, in one ```python code block."
)
KNIGHTS_TEMPLATE = (
    "{prompt}\n\nEnd with one line for each person, such as `Zoey is a knight.` or `Zoey is a "
    "knave.`"
)


@dataclass(frozen=True, slots=True)
class Hub:
    """The place of a data set on the Hugging Face hub."""

    path: str
    config: str | None = None
    split: str = "train"


@dataclass(frozen=True, slots=True)
class Mapping:
    """One kind of row. Both functions raise RowError if the row is not of that kind."""

    prompt: Callable[[Row], Chat]
    reference: Callable[[Row], Any]
    """What a built-in verifier gets; JSON values."""
    verifier: str
    template: str = "{prompt}"
    hub: Hub | None = None


def _math(prompt_field: str, answer: Callable[[Row], str], hub: Hub) -> Mapping:
    return Mapping(
        lambda row: make_chat(text(row, prompt_field)), answer, "math", MATH_TEMPLATE, hub
    )


def _after_hashes(row: Row) -> str:
    """`... #### 1,234` -> `1234`."""
    _, marker, answer = text(row, "answer").rpartition("####")
    if not marker or not answer.strip():
        raise RowError("field 'answer' does not end in `#### ` and a number")
    return answer.strip().replace(",", "")


def _whole_number(row: Row) -> str:
    """An integer from 0 to 999; some copies write it with leading zeros."""
    answer = text(row, "answer").strip()
    if not (answer.isascii() and answer.isdigit()):
        raise RowError(f"field 'answer' holds {answer[:40]!r}, not a whole number")
    return str(int(answer))


def _program_prompt(problem_field: str) -> Callable[[Row], Chat]:
    def prompt(row: Row) -> Chat:
        problem = text(row, problem_field)
        starter_code = str(row.get("starter_code") or "")
        if starter_code.strip():
            problem = f"{problem}\n\nStarter code:\n```python\n{starter_code}\n```"
        return make_chat(problem)

    return prompt


def _mbpp_prompt(row: Row) -> Chat:
    """The function's name stands only in the tests."""
    tests = value(row, "test_list")
    if not isinstance(tests, list) or not all(isinstance(line, str) for line in tests):
        raise RowError("field 'test_list' is not a list of texts")
    return make_chat(text(row, "prompt") + "\n\nIt must pass these tests:\n" + "\n".join(tests))


def _knights(row: Row) -> dict[str, str]:
    names = value(row, "names")
    solution = value(row, "solution")
    if not (isinstance(names, list) and isinstance(solution, list) and len(names) == len(solution)):
        raise RowError("fields 'names' and 'solution' are not two lists of one length")
    return {
        str(name): "knight" if knight else "knave"
        for name, knight in zip(names, solution, strict=True)
    }


MAPPINGS: dict[MappingName, Mapping] = {
    "polaris-53k": _math(
        "problem", lambda row: text(row, "answer"), Hub("POLARIS-Project/Polaris-Dataset-53K")
    ),
    "gsm8k": _math("question", _after_hashes, Hub("openai/gsm8k", "main")),
    "math-500": _math(
        "problem", lambda row: text(row, "answer"), Hub("HuggingFaceH4/MATH-500", split="test")
    ),
    "aime-24": _math("problem", _whole_number, Hub("HuggingFaceH4/aime_2024")),
    "deepcoder": Mapping(
        _program_prompt("problem"),
        code_tests.deepcoder,
        "code",
        PROGRAM_TEMPLATE,
        Hub("agentica-org/DeepCoder-Preview-Dataset", "primeintellect"),
    ),
    "livecodebench": Mapping(
        _program_prompt("question_content"),
        code_tests.livecodebench,
        "code",
        PROGRAM_TEMPLATE,
        Hub("lighteval/code_generation_lite", "v6", "test"),
    ),
    "humaneval": Mapping(
        lambda row: make_chat(f"Complete this function:\n```python\n{text(row, 'prompt')}\n```"),
        code_tests.humaneval,
        "code",
        FUNCTION_TEMPLATE,
        Hub("openai/openai_humaneval", split="test"),
    ),
    "mbpp-plus": Mapping(
        _mbpp_prompt,
        code_tests.mbpp_plus,
        "code",
        FUNCTION_TEMPLATE,
        Hub("evalplus/mbppplus", split="test"),
    ),
    "knights-and-knaves": Mapping(
        lambda row: make_chat(text(row, "quiz")),
        _knights,
        "knights-and-knaves",
        KNIGHTS_TEMPLATE,
        Hub("K-and-K/knights-and-knaves", "train", "3ppl"),
    ),
}
"""All except `plain`, which takes the field names from the run file."""


def resolve_mapping(dataset: RowsDataset) -> Mapping:
    """The data set's mapping with what the run file says differently; `plain` rows of one's own
    have two fields.
    """
    if dataset.mapping == "plain":
        mapping = Mapping(
            lambda row: chat(row, dataset.prompt_field),
            lambda row: value(row, dataset.answer_field),
            "exact",
        )
    else:
        mapping = MAPPINGS[dataset.mapping]
    return replace(
        mapping,
        verifier=mapping.verifier if dataset.verifier is None else dataset.verifier,
        template=mapping.template if dataset.template is None else dataset.template,
    )


def verifier_names(tasks: Tasks) -> set[str]:
    """What grades the rows of its data sets; generated sets need no verifier of others."""
    datasets = [
        *(dataset_part.dataset for dataset_part in tasks.parts),
        *(item.dataset for item in tasks.downstream),
    ]
    rows = [dataset for dataset in datasets if isinstance(dataset, RowsDataset)]
    return {resolve_mapping(dataset).verifier for dataset in rows if _may_be_graded(dataset, tasks)}


def _may_be_graded(dataset: RowsDataset, tasks: Tasks) -> bool:
    """Whether a verifier may grade rows of it: not if each is answered in an environment that
    rewards by itself.
    """
    if dataset.environment is None:
        return True
    return not all(environment_rewards(environment, dataset) for environment in tasks.environments)
