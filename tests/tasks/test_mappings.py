"""Ready mappings: rows in the published formats, written by hand, and the real rows where they are
at hand.
"""

from __future__ import annotations

import base64
import datetime
import gzip
import json
import os
import pickle
import re
import zlib
from pathlib import Path
from typing import Any, get_args

import pytest

from rollcast.config.datasets import JsonlDataset, MappingName, ParquetDataset
from rollcast.config.errors import UserError
from rollcast.config.tasks import Evaluation, Tasks
from rollcast.tasks.code_tests import unpack
from rollcast.tasks.fields import RowError
from rollcast.tasks.mappings import MAPPINGS
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import load
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade

NEEDS_PROTECTIONS = pytest.mark.protections
GSM8K = {"question": "How many eggs?", "answer": "She has <<16-3=13>>13.\n#### 1,213"}
MATH_500 = {
    "problem": "Solve.",
    "solution": "...",
    "answer": "\\frac{3}{4}",
    "subject": "Algebra",
    "level": 2,
}
POLARIS = {"problem": "Find $x$.", "answer": "\\pi", "difficulty": "3/8"}
AIME_24 = {
    "id": 60,
    "problem": "Find $m+n$.",
    "solution": "...",
    "answer": "033",
    "url": "u",
    "year": "2024",
}
HUMANEVAL = {
    "task_id": "HumanEval/0",
    "prompt": 'from typing import List\n\n\ndef twice(x: int) -> int:\n    """ Double it. """\n',
    "entry_point": "twice",
    "canonical_solution": "    return 2 * x\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n",
}
MBPP = {
    "task_id": 2,
    "code": "def f(a):\n    return a\n",
    "prompt": "Write a function f that returns its argument.",
    "test_imports": [],
    "test_list": ["assert f(1) == 1", "assert f(2) == 2"],
    "test": "inputs = [1, 2]\nfor value in inputs:\n    assert f(value) == value\n",
}
KNIGHTS = {"quiz": "Who is who?", "names": ["Zoey", "Jacob"], "solution": [True, False], "index": 7}
TACO = {
    "problem": "Add.",
    "tests": json.dumps({"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}),
}
TACO_CALL = {
    "problem": "Add.",
    "tests": json.dumps({"fn_name": "add", "inputs": [[1, 2], [3, 4]], "outputs": [[3], [7]]}),
}
PRIME = {
    "problem": "Add.",
    "tests": json.dumps([{"type": "stdin_stdout", "input": "1 2\n", "output": "3\n"}]),
}
PRIME_CALL = {
    "problem": "Sort.",
    "tests": json.dumps(
        [
            {"type": "function_call", "fn_name": "order", "input": [[2, 1]], "output": [[1, 2]]},
            {"type": "function_call", "fn_name": "order", "input": [[]], "output": [[]]},
        ]
    ),
}
LCB_V5_CALL = {
    "problem": "Add.",
    "starter_code": "class Solution:\n    def add(self, a, b):",
    "tests": json.dumps([{"input": '1\n"x"', "output": "[1]", "testtype": "functional"}]),
    "metadata": {"func_name": "add"},
}
CODEFORCES = {
    "problem": "Echo.",
    "tests": json.dumps([{"input": "a", "output": "a", "testtype": "stdin"}]),
}
EXACTLY = {"comparison": "exact"}
AS_NUMPY = {"comparison": "float", "tolerance": {"relative": 1e-5, "absolute": 1e-8}}
"""What numpy.allclose allows if nothing is said."""


def packed(cases: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(cases)))).decode()


LIVECODEBENCH = {
    "question_content": "Echo.",
    "starter_code": "",
    "public_test_cases": json.dumps([{"input": "a", "output": "a", "testtype": "stdin"}]),
    "private_test_cases": packed([{"input": "b", "output": "b", "testtype": "stdin"}]),
    "metadata": "{}",
}
LIVECODEBENCH_CALL = {
    "question_content": "Add.",
    "starter_code": "class Solution:\n    def add(self, a: int, b: int) -> int:",
    "public_test_cases": json.dumps([{"input": "1\n2", "output": "3", "testtype": "functional"}]),
    "private_test_cases": json.dumps(
        [{"input": "[1]\n[2]", "output": "[1, 2]", "testtype": "functional"}]
    ),
    "metadata": json.dumps({"func_name": "add"}),
}


def read(mapping: MappingName, *rows: dict[str, Any], folder: Path) -> list[Prompt]:
    """The prompts of a file with these rows and one more, which is held out."""
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    dataset = JsonlDataset(name="d", path=path, mapping=mapping)
    split = load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1)))
    return sorted(split.train + split.held_out, key=lambda prompt: prompt.text)


@pytest.mark.parametrize(
    ("mapping", "row", "verifier", "reference"),
    [
        ("gsm8k", GSM8K, "math", "1213"),
        ("math-500", MATH_500, "math", "\\frac{3}{4}"),
        ("polaris-53k", POLARIS, "math", "\\pi"),
        ("aime-24", AIME_24, "math", "33"),
        ("knights-and-knaves", KNIGHTS, "knights-and-knaves", {"Zoey": "knight", "Jacob": "knave"}),
        (
            "humaneval",
            HUMANEVAL,
            "code",
            {
                "kind": "tests",
                "tests": "def check(candidate):\n    assert candidate(2) == 4\n\n\ncheck(twice)\n",
                "preamble": HUMANEVAL["prompt"],
                "entry_point": "twice",
            },
        ),
        ("mbpp-plus", MBPP, "code", {"kind": "tests", "tests": MBPP["test"], "preamble": ""}),
        (
            "deepcoder",
            TACO,
            "code",
            AS_NUMPY
            | {
                "kind": "stdin",
                "cases": [{"input": "1 2\n", "output": "3\n"}, {"input": "3 4\n", "output": "7\n"}],
            },
        ),
        (
            "deepcoder",
            TACO_CALL,
            "code",
            AS_NUMPY
            | {
                "kind": "calls",
                "entry_point": "add",
                "cases": [{"arguments": [1, 2], "output": 3}, {"arguments": [3, 4], "output": 7}],
            },
        ),
        (
            "deepcoder",
            PRIME,
            "code",
            AS_NUMPY | {"kind": "stdin", "cases": [{"input": "1 2\n", "output": "3\n"}]},
        ),
        (
            "deepcoder",
            CODEFORCES,
            "code",
            AS_NUMPY | {"kind": "stdin", "cases": [{"input": "a", "output": "a"}]},
        ),
        (
            "deepcoder",
            PRIME_CALL,
            "code",
            AS_NUMPY
            | {
                "kind": "calls",
                "entry_point": "order",
                "cases": [
                    {"arguments": [[2, 1]], "output": [1, 2]},
                    {"arguments": [[]], "output": []},
                ],
            },
        ),
        (
            "deepcoder",
            LCB_V5_CALL,
            "code",
            EXACTLY
            | {
                "kind": "calls",
                "entry_point": "add",
                "cases": [{"arguments": [1, "x"], "output": [1]}],
            },
        ),
        (
            "livecodebench",
            LIVECODEBENCH,
            "code",
            EXACTLY
            | {
                "kind": "stdin",
                "cases": [{"input": "a", "output": "a"}, {"input": "b", "output": "b"}],
            },
        ),
        (
            "livecodebench",
            LIVECODEBENCH_CALL,
            "code",
            EXACTLY
            | {
                "kind": "calls",
                "entry_point": "add",
                "cases": [
                    {"arguments": [1, 2], "output": 3},
                    {"arguments": [[1], [2]], "output": [1, 2]},
                ],
            },
        ),
    ],
)
def test_a_row_of_a_published_set_becomes_prompt_and_reference(
    mapping: MappingName, row: dict[str, Any], verifier: str, reference: object, tmp_path: Path
) -> None:
    first = next(iter(row))
    field = {"id": "problem", "task_id": "prompt"}.get(first, first)
    prompts = read(mapping, row, row | {field: "# Another\n" + str(row[field])}, folder=tmp_path)
    prompt = next(prompt for prompt in prompts if "# Another" not in prompt.text)
    assert prompt.verifier == verifier
    found = json.loads(prompt.reference)
    if mapping in ("deepcoder", "livecodebench"):
        assert "from typing import *" in found.pop("preamble")
    assert found == reference
    assert str(row[field]).strip() in prompt.text


def test_contests_outside_the_window_of_dates_are_left_out_and_counted(tmp_path: Path) -> None:
    dates = [
        "2024-12-31T23:59:59",
        "2025-01-01T00:00:00",
        "2025-02-28",
        "2025-03-01T00:00:00",
        "soon",
        None,
    ]
    rows: list[dict[str, Any]] = [
        LIVECODEBENCH | {"question_content": f"Task {n}", "contest_date": day}
        for n, day in enumerate(dates)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    window: dict[str, Any] = {
        "from_date": datetime.date(2025, 1, 1),
        "to_date": datetime.date(2025, 2, 28),
    }
    dataset = JsonlDataset(name="d", path=path, mapping="livecodebench", **window)
    split = load(Tasks(dataset=dataset, evaluation=Evaluation(num_prompts=1)))
    asked = {prompt.text.splitlines()[0] for prompt in split.train + split.held_out}
    assert asked == {"Task 1", "Task 2"}
    assert (split.skipped["other_date"], split.skipped["no_date"]) == (2, 2)


METHOD = "class Solution:\n    def {name}(self, a: List[int], b: int) -> int:"
BY_HEAP = """class Solution:
    def {name}(self, a: List[int], b: int) -> int:
        return math.gcd(heappop(sorted(a)), Counter(a)[a[0]]) + b
"""


@NEEDS_PROTECTIONS
@pytest.mark.parametrize("name", ["add", "gcd", "permutations"])
def test_programs_that_count_on_the_usual_imports_are_graded_as_their_judges_do(
    name: str, code_sandbox: Sandbox
) -> None:
    """The starter code of such tasks names `List` without importing it; some methods are named as
    what is imported.
    """
    cases = [{"input": "[4, 2, 4]\n1", "output": "3", "testtype": "functional"}]
    deepcoder = {
        "problem": "Add.",
        "starter_code": METHOD.format(name=name),
        "tests": json.dumps(cases),
    }
    deepcoder["metadata"] = json.dumps({"func_name": name})
    livecodebench = LIVECODEBENCH_CALL | {
        "metadata": deepcoder["metadata"],
        "public_test_cases": json.dumps(cases),
    }
    livecodebench["private_test_cases"] = packed(cases)
    right = BY_HEAP.format(name=name)
    for mapping, row in (("deepcoder", deepcoder), ("livecodebench", livecodebench)):
        reference = json.dumps(MAPPINGS[mapping].reference(row))  # type: ignore[index]
        for program, status in (
            (right, "ok"),
            (right.replace("+ b", "- b"), "wrong"),
            ("pass", "wrong"),
        ):
            assert (
                code_sandbox.grade("code", f"```python\n{program}\n```", reference).status == status
            ), program


@NEEDS_PROTECTIONS
def test_scripts_have_the_usual_imports_too(code_sandbox: Sandbox) -> None:
    reference = json.dumps(MAPPINGS["deepcoder"].reference(TACO))
    program = (
        "pairs: List[int] = list(map(int, "
        "sys.stdin.readline().split()))\nprint(reduce(operator.add, pairs))"
    )
    assert code_sandbox.grade("code", f"```python\n{program}\n```", reference) == Grade(1.0, "ok")


def test_what_a_model_must_know_stands_in_the_prompt(tmp_path: Path) -> None:
    (mbpp, _) = read("mbpp-plus", MBPP, MBPP | {"prompt": "Z"}, folder=tmp_path)
    assert "assert f(1) == 1" in mbpp.text, "only the tests name the function"
    (lcb, _) = read("deepcoder", LCB_V5_CALL, LCB_V5_CALL | {"problem": "Z"}, folder=tmp_path)
    assert "class Solution:\n    def add(self, a, b):" in lcb.text
    (gsm8k, _) = read("gsm8k", GSM8K, GSM8K | {"question": "Z"}, folder=tmp_path)
    assert "\\boxed{}" in gsm8k.text


def test_every_name_of_the_settings_has_a_mapping() -> None:
    assert {*MAPPINGS, "plain"} == set(get_args(MappingName))


@pytest.mark.parametrize(
    ("mapping", "row", "complaint"),
    [
        ("gsm8k", {"question": "q", "answer": "18"}, "does not end in `#### `"),
        ("gsm8k", {"problem": "q", "answer": "#### 1"}, "field 'question' is missing"),
        ("math-500", {"problem": ["q"], "answer": "1"}, "field 'problem' holds a list, needs text"),
        ("aime-24", {"problem": "q", "answer": "x+1"}, "not a whole number"),
        (
            "knights-and-knaves",
            {"quiz": "q", "names": ["A"], "solution": []},
            "not two lists of one length",
        ),
        ("mbpp-plus", MBPP | {"test_list": "assert"}, "not a list of texts"),
        ("deepcoder", {"problem": "q", "tests": "{"}, "field 'tests' is not JSON"),
        ("deepcoder", {"problem": "q", "tests": "[]"}, "there is no test"),
        (
            "deepcoder",
            {"problem": "q", "tests": '{"inputs": ["1"], "outputs": []}'},
            "no inputs and outputs of one",
        ),
        ("livecodebench", LIVECODEBENCH_CALL | {"metadata": "{}"}, "does not name it"),
        ("livecodebench", LIVECODEBENCH | {"private_test_cases": "%%%"}, "cannot be unpacked"),
    ],
)
def test_a_row_of_another_kind_is_named_by_line_and_field(
    mapping: MappingName, row: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        read(mapping, row, folder=tmp_path)
    assert f"{tmp_path}/rows.jsonl, line 1: " in str(caught.value)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("exit 1",)


def test_a_pickle_that_is_a_program_is_not_run() -> None:
    for content in (Evil(), ["[]"], {"a": "[]"}):
        hostile = base64.b64encode(zlib.compress(pickle.dumps(content))).decode()
        with pytest.raises(RowError, match=r"more than one text|cannot be unpacked"):
            unpack(hostile)


def test_a_bomb_is_not_inflated_beyond_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcast.tasks.code_tests.MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(RowError, match="cannot be unpacked"):
        unpack(packed([{"input": "a" * (4 << 20), "output": "", "testtype": "stdin"}]))
    assert unpack(packed([{"input": "a"}])) == [{"input": "a"}]


# The real sets

SHARED = Path(os.environ.get("ROLLCAST_SHARED_DATA", "")) / "tasks"
on_real_rows = pytest.mark.skipif(
    "ROLLCAST_SHARED_DATA" not in os.environ or not SHARED.is_dir(),
    reason="ROLLCAST_SHARED_DATA names no task sets",
)


@pytest.mark.shared_data
@on_real_rows
@pytest.mark.parametrize(
    ("mapping", "file", "rows"),
    [
        ("gsm8k", "gsm8k/test.jsonl", 1319),
        ("gsm8k", "gsm8k/train.jsonl", 7473),
        ("math-500", "math500/test.jsonl", 500),
        ("humaneval", "humaneval/HumanEval.jsonl.gz", 164),
        ("mbpp-plus", "mbppplus/MbppPlus-OriginFmt.jsonl.gz", 378),
        ("knights-and-knaves", "kk_logic/3ppl_test.parquet", 100),
        ("knights-and-knaves", "kk_logic/3ppl_train.parquet", 900),
    ],
)
def test_every_row_of_the_real_set_is_mapped(mapping: MappingName, file: str, rows: int) -> None:
    kind = ParquetDataset if file.endswith(".parquet") else JsonlDataset
    split = load(
        Tasks(
            dataset=kind(name="d", path=SHARED / file, mapping=mapping, verifier="exact"),
            evaluation=Evaluation(num_prompts=10),
        )
    )
    read_or_counted = len(split.train) + len(split.held_out) + sum(split.skipped.values())
    assert read_or_counted == rows
    assert sum(split.skipped.values()) <= rows // 100


@pytest.mark.shared_data
@on_real_rows
@NEEDS_PROTECTIONS
def test_reference_solutions_of_real_tasks_pass_and_their_mutants_fail(
    code_sandbox: Sandbox,
) -> None:
    """Every eleventh task of HumanEval, every twenty-fifth of MBPP+.

    A mutant answers every call with another value.
    """
    humaneval = [
        (row, row["prompt"] + row["canonical_solution"])
        for row in real_rows("humaneval/HumanEval.jsonl.gz")[::11]
    ]
    mbpp = [(row, row["code"]) for row in real_rows("mbppplus/MbppPlus-OriginFmt.jsonl.gz")[::25]]
    assert len(humaneval) + len(mbpp) >= 30
    for mapping, solved in (("humaneval", humaneval), ("mbpp-plus", mbpp)):
        for row, solution in solved:
            reference = MAPPINGS[mapping].reference(row)  # type: ignore[index]
            name = (
                reference.get("entry_point")
                or re.findall(r"^def (\w+)", solution, re.MULTILINE)[-1]
            )
            mutant = f"{solution}\ndef {name}(*arguments): return ('mutant',)\n"
            for program, status in ((solution, "ok"), (mutant, "wrong")):
                grade = code_sandbox.grade(
                    "code", f"```python\n{program}\n```", json.dumps(reference)
                )
                assert grade.status == status, (row["task_id"], status, grade)


def real_rows(file: str) -> list[dict[str, Any]]:
    with gzip.open(SHARED / file, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
