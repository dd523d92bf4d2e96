"""The shipped tools on right and hostile input. What contains them is tested with the profiles."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import psutil
import pytest

from rollcast.config.environments.tool_set import ToolSet
from rollcast.config.errors import UserError
from rollcast.environments.tools.answers import cut
from rollcast.environments.tools.calculator import calculator
from rollcast.environments.tools.functions import tool_functions
from rollcast.environments.tools.python_code import MAX_PRINTED_CHARACTERS, python
from rollcast.environments.tools.search import NUM_RESULTS, search_over
from rollcast.environments.tools.shell import MAX_OUTPUT_BYTES, shell_within


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(17 - 5) / 4", "3"),
        ("7 / 2", "3.5"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("2^10", "1024"),
        ("2**-1", "0.5"),
        ("0.1 + 0.2", "0.3"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("sqrt(2)", f"{math.sqrt(2):.12g}"),
        ("round(2.567, 1)", "2.6"),
        ("max(3, min(9, 4))", "4"),
        ("gcd(12, 18)", "6"),
        ("2 * pi", f"{2 * math.pi:.12g}"),
        (" 12345678901234567890 * 10 ", "123456789012345678900"),
        ("1e3", "1000"),
    ],
)
def test_the_calculator_computes(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "1 / 0",
        "0 ** -1",
        "(-8) ** 0.5",
        "9**9**9**9",
        "2 ** 100000",
        "1e308 * 10",
        "10.0 ** 400",
        "x + 1",
        "True + 1",
        "'a' * 10",
        "[1] * 3",
        "__import__('os').system('true')",
        "(1).__class__",
        "sqrt(-1)",
        "sqrt(1, 2, 3)",
        "log(0)",
        "round(1, ndigits=1)",
        "print(1)",
        "1 if 1 else 2",
        "(" * 400 + "1" + ")" * 400,
        "-" * 900 + "1",
        "1" * 2_000,
        "9" * 990 + "**9",
        "\x00",
        "1 + 1; 2",
    ],
)
def test_the_calculator_answers_what_it_cannot_compute(expression: str) -> None:
    began = time.process_time()
    result = calculator(expression)
    assert result.startswith("Error: ") or result in ("1", "-1")
    assert len(result) < 1_500
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("print(6 * 7)", "42"),
        ("x = 20\nx + 22", "42"),
        ("import math\nmath.comb(5, 2)", "10"),
        ("def f(n):\n    return 1 if n < 2 else n * f(n - 1)\nprint(f(10))\nNone", "3628800"),
        ("import sys\nprint('to', file=sys.stderr)\nprint('both')", "to\nboth"),
        ("x = 1", "(no output)"),
        ("", "(no output)"),
        ("raise SystemExit", "(no output)"),
        ("print('a')\nexit(3)", "a\nthe program ended with 3"),
        ("__name__", "'__main__'"),
    ],
)
def test_python_runs_programs(code: str, result: str) -> None:
    assert python(code) == result


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 +", "SyntaxError"),
        ("print('before')\n1 / 0", "before\nZeroDivisionError: division by zero (line 2)"),
        ("def f():\n    return {}['k']\nf()", "KeyError: 'k' (line 2, called in line 3)"),
        ("class E(Exception):\n    def __str__(self):\n        raise self\nraise E", "E"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("def f(): f()\nf()", "RecursionError"),
        ("\x00", "SyntaxError"),
        ("'\ud800'\nprint('\\ud800')", ""),
        ("(" * 500, "SyntaxError"),
        ("raise ExceptionGroup('g', [ValueError('v')])", "ExceptionGroup"),
    ],
)
def test_the_mistakes_of_a_program_are_its_output(code: str, said: str) -> None:
    assert said in python(code)


def test_python_keeps_nothing_and_bounds_what_is_printed() -> None:
    python("kept = 1")
    assert "NameError" in python("kept")
    text = python("for _ in range(300):\n    print('x' * 999)\n1/0")
    assert len(text) < MAX_PRINTED_CHARACTERS + 200
    assert "further characters were not kept" in text


def test_the_shell_runs_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shell = shell_within(60.0)
    assert shell("echo hello > file; cat file") == "hello"
    assert shell("cat file | tr a-z A-Z") == "HELLO"
    assert shell("ls none").endswith("[exit code 2]")
    assert shell("echo a; echo b >&2; exit 3") == "a\nb\n[exit code 3]"
    assert shell("true") == "(no output)"
    assert shell("cat") == "(no output)", "there is no input"
    assert shell("if then").endswith("[exit code 2]")
    assert shell("printf '\\377'") == "\ufffd"
    assert shell("kill -9 $$") == "[exit code -9]"
    assert shell("echo \x00").startswith("Error: ")
    assert shell("#" * (1 << 20)).startswith("Error: ")


def has_ended(pid_file: Path) -> bool:
    """Whether that process ends within some seconds; no process may wait for it, so it may stay a
    zombie.
    """
    try:
        process = psutil.Process(int(pid_file.read_text()))
        deadline = time.monotonic() + 10
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
            time.sleep(0.01)
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_command_without_end_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    shell = shell_within(1.0)
    text = shell(f"echo begun; sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert text.startswith("begun\n[ended: the command took more than 0.9 s]")
    assert has_ended(tmp_path / "pid")


def test_what_a_command_leaves_running_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    began = time.monotonic()
    assert shell_within(600.0)(f"sleep 600 & echo $! > {tmp_path}/pid; echo done") == "done"
    assert time.monotonic() - began < 60
    assert has_ended(tmp_path / "pid")


def test_output_without_end_is_read_and_dropped() -> None:
    text = shell_within(2.0)("yes")
    assert len(text) < MAX_OUTPUT_BYTES + 200
    assert "further bytes were not kept" in text
    assert shell_within(60.0)("head -c 3000000 /dev/zero | tr '\\0' x; exit 1").endswith(
        "[exit code 1]"
    )


def corpus(folder: Path, rows: list[object]) -> Path:
    file = folder / "corpus.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


TEXTS: list[object] = [
    {"title": "Paris", "text": "Paris is the capital of France, on the river Seine."},
    {"title": "Berlin", "text": "Berlin is the capital of Germany."},
    {"text": "Bananas are yellow fruit."},
    {"title": "Long", "text": "zebra " * 2_000},
    *({"title": f"River {n}", "text": f"River number {n} flows."} for n in range(20)),
]


def test_the_search_finds_the_best_first(tmp_path: Path) -> None:
    search = search_over(corpus(tmp_path, TEXTS))
    assert search("capital of France").startswith("[1] Paris\nParis is the capital of France")
    assert search("YELLOW bananas").startswith("[1] Bananas are yellow fruit.")
    assert search("zebra").endswith(" [...]")
    assert search("river flows").count("River number") == NUM_RESULTS


@pytest.mark.parametrize(
    "query", ["", "   ", "the of and", "xylophone", "?!\x00\ud800", "a" * 1_000_000]
)
def test_a_search_for_nothing_is_answered(query: str, tmp_path: Path) -> None:
    assert search_over(corpus(tmp_path, TEXTS))(query).startswith("Nothing was found")


def test_a_corpus_of_one_text_is_enough(tmp_path: Path) -> None:
    assert "Bananas" in search_over(corpus(tmp_path, [TEXTS[2]]))("bananas")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "is empty"),
        ([TEXTS[0], {"body": "x"}], "line 2: needs a JSON object with a field `text`"),
        ([TEXTS[0], "text"], "line 2"),
        ([{"text": 1}], "line 1"),
    ],
)
def test_a_wrong_corpus_is_named(rows: list[object], said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        search_over(corpus(tmp_path, rows))
    with pytest.raises(UserError, match=r"none\.jsonl: cannot be read"):
        search_over(tmp_path / "none.jsonl")


def test_a_set_holds_shipped_and_own_functions(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def twice(n: int) -> int:\n    return 2 * n\ndef python(code: str): ...\n"
    )
    settings = ToolSet(
        name="e",
        tools=("calculator", "search", f"{tmp_path}/own.py:twice"),
        corpus=corpus(tmp_path, TEXTS),
    )
    functions = tool_functions(settings)
    assert list(functions) == ["calculator", "search", "twice"]
    assert functions["twice"](21) == 42
    assert all(function.__doc__ for name, function in functions.items() if name != "twice")
    with pytest.raises(UserError, match="two tools are called python"):
        tool_functions(ToolSet(name="e", tools=("python", f"{tmp_path}/own.py:python")))


@pytest.mark.parametrize("length", [0, 1, 99, 100])
def test_a_short_text_is_whole(length: int) -> None:
    assert cut("x" * length, 100) == "x" * length


def test_a_long_text_keeps_both_ends() -> None:
    text = cut("a" * 500 + "b" * 501, 100)
    assert text.startswith("a" * 50 + "\n[... 901 characters were cut ...]\n")
    assert text.endswith("b" * 50)
