"""Answers to programming tasks and the grade that each deserves: 1 = right, 0 = wrong.

To add one, append a line: BLOCKS for which fenced block is the program, VALUES and TEXTS for how
results are compared.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from rollcast.tasks.code_reference import (
    AS_TACO,
    EXACT,
    Call,
    CodeReference,
    StdinCase,
    calls,
    stdin,
    tests,
)

FLOAT: None = None
"""No comparison in the reference: an expected decimal allows 1e-6, relative or absolute."""


@dataclass(frozen=True)
class Case:
    name: str
    reference: CodeReference
    answer: str
    grade: int


def _add(*outputs: int) -> CodeReference:
    """f(x) = x + 1, called with 1, 2, ..."""
    return calls("f", [Call(arguments=[one - 1], output=one) for one in outputs or (2, 9)], "")


def _double(text: str = "3\n", wanted: str = "6\n") -> CodeReference:
    """A script that prints twice the number that it reads."""
    return stdin([StdinCase(input=text, output=wanted)], "")


_SOLUTION = "```python\nclass Solution:\n    def f(self, x):\n        return x + 1\n```\n"
_FUNCTION = "```python\ndef f(x):\n    return x + 1\n```\n"
_SCRIPT = "```python\nn = int(input())\nprint(2 * n)\n```\n"
_MAIN = """```python
import sys

def double(n):
    return 2 * n

def main():
    print(double(int(sys.stdin.readline())))

if __name__ == '__main__':
    main()
```
"""
_ASKED_TWICE = tests("assert f(1) == 2 and g(1) == 3", "", None)


def _indented(text: str, by: str = "   ") -> str:
    return textwrap.indent(text, by)


BLOCKS = [
    Case("one block", _add(), _FUNCTION, 1),
    Case("usage after a method", _add(),
        f"{_SOLUTION}Example:\n```python\ns = Solution()\nprint(s.f(1))\n```", 1),
    Case("assertions after a function", _add(),
        f"{_FUNCTION}Tests:\n```python\nassert f(1) == 2\nassert f(2) == 3\n```", 1),
    Case("wrong assertions in a block of their own", _add(),
        f"{_FUNCTION}```python\nassert f(1) == 3\n```", 1),
    Case("sample output in an unnamed block", _double(), f"{_SCRIPT}Output:\n```\n6\n```", 1),
    Case("sample input and output in unnamed blocks", _double(),
        f"```\n3\n```\n{_SCRIPT}```\n6\n```", 1),
    Case("a word as sample output", _double(), f"{_SCRIPT}It prints\n```\nsix\n```", 1),
    Case("an assignment as sample output", _double(), f"{_SCRIPT}```\nanswer = 6\n```", 1),
    Case("a doctest session", _add(), f"{_FUNCTION}```\n>>> f(1)\n2\n```", 1),
    Case("a shell block", _double(), f"{_SCRIPT}Run it:\n```bash\necho 3 | python main.py\n```", 1),
    Case("a usage block that calls a helper", _double(),
        f"{_MAIN}Usage:\n```python\nprint(double(3))\n```", 1),
    Case("a usage block that fakes the input", _double(),
        f"{_MAIN}```python\nimport io, sys\nsys.stdin = io.StringIO('4')\nmain()\n```", 1),
    Case("a unittest after the solution", _add(), (
            f"{_FUNCTION}```python\nimport unittest\nclass T(unittest.TestCase):\n"
            "    def test(self):\n        self.assertEqual(f(1), 2)\nunittest.main()\n```"
        ), 1),
    Case("a better second attempt", _add(),
        f"```python\ndef f(x):\n    return x\n```\nBetter:\n{_FUNCTION}", 1),
    Case("a worse second attempt", _add(),
        f"{_FUNCTION}Finally:\n```python\ndef f(x):\n    return x\n```", 0),
    Case("a second script that is wrong", _double(),
        f"{_SCRIPT}Finally:\n```python\nprint(int(input()))\n```", 0),
    Case("a last attempt with a syntax error", _add(),
        f"{_FUNCTION}Finally:\n```python\ndef f(x) return x\n```", 0),
    Case("a signature repeated after the solution", _add(),
        f"{_FUNCTION}```python\ndef f(x: int) -> int:\n    ...\n```", 1),
    Case("a fence in a list item", _double(), f"1. Solution:\n\n{_indented(_SCRIPT)}", 1),
    Case("a fence on the line of a list item", _double(), f"- {_indented(_SCRIPT, '  ').lstrip()}",
        1),
    Case("a fence indented by a tab", _double(), _indented(_SCRIPT, "\t"), 1),
    Case("a whole block indented inside its fence", _double(),
        "```python\n    n = int(input())\n    print(2 * n)\n```", 1),
    Case("tildes", _double(), _SCRIPT.replace("```", "~~~"), 1),
    Case("four backticks", _double(), _SCRIPT.replace("```", "````"), 1),
    Case("a fence in a docstring", _add(), (
            '```python\ndef f(x):\n    """\n    Example:\n    ```\n    f(1)\n    ```\n    """\n    '
            'return x + 1\n```'
        ), 1),
    Case("a python fence in the docstring of a module", _double(),
        '```python\n"""\n```python\nmain()\n```\n"""\nprint(2 * int(input()))\n```\nDone.', 1),
    Case("backticks in the docstring of a block of tildes", _add(),
        "~~~python\ndef f(x):\n    '''```\n    f(1)\n    ```'''\n    return x + 1\n~~~", 1),
    Case("imports in a block before", _add(),
        "```python\nimport operator\n```\n```python\ndef f(x):\n    return operator.add(x, 1)\n```",
        1),
    Case("a helper in a block before", _double(), (
            "```python\ndef double(n):\n    return 2 * n\nprint(double(1))\nassert double(1) == 2\n"
            "```\nThen\n"
            "```python\nprint(double(int(input())))\n```"
        ), 1),
    Case("a helper in a block after", _add(), (
            "```python\ndef f(x):\n    return step(x)\n```\nwith\n```python\ndef step(x):\n    "
            "return x + 1\n```"
        ), 1),
    Case("a chain of helpers", _add(), (
            "```python\nONE = 1\n```\n```python\ndef step(x):\n    return x + ONE\n```\n"
            "```python\ndef f(x):\n    return step(x)\n```\n```python\nprint(f(1))\n```"
        ), 1),
    Case("a function that reads, called in the next block", _double(), (
            "```python\ndef solve():\n    print(2 * int(input()))\n```\nCall it:\n```python\n"
            "solve()\n```"
        ), 1),
    Case("two functions in two blocks", _ASKED_TWICE, (
            f"{_FUNCTION}and\n```python\ndef g(x):\n    return x + 2\n```\n```python\nprint(f(1), "
            "g(1))\n```"
        ), 1),
    Case("a named block beats an unnamed one", _add(), f"{_FUNCTION}```\nf(1)\n```", 1),
    Case("the solution in an unnamed block", _add(), _FUNCTION.replace("```python", "```"), 1),
    Case("a lambda", _add(), "```python\nf = lambda x: x + 1\n```\n```python\nprint(f(1))\n```", 1),
    Case("only sample output", _double(), "The output is\n```\n6\n```", 0),
    Case("only a usage example", _add(), "```python\nprint(f(1))\n```", 0),
    Case("a cut answer", _add(), "```python\ndef f(x):\n    return x + 1", 0),
    Case("a block that was never closed before the solution", _add(),
        f"```python\ndef f(x):\n    re\n\nAgain:\n{_FUNCTION}", 1),
    Case("the solution in the think block only", _add(), f"<think>{_FUNCTION}</think>As above.", 0),
    Case("a script without input", stdin([StdinCase(input="", output="6")], ""),
        "```python\nprint(6)\n```\n```\n6\n```", 1),
    Case("reading by open(0)", _double(),
        "```python\nprint(2 * int(open(0).read()))\n```\n```python\nprint(2 * 3)\n```", 1),
    Case("steps explained after the program", _double(), (
            f"{_SCRIPT}First it reads\n```python\nn = int(input())\n```\nand then\n```python\n"
            "print(2 * n)\n```"
        ), 1),
    Case("a program in two steps", _double(),
        "```python\nn = int(input())\n```\nThen:\n```python\nprint(2 * n)\n```", 1),
    Case("a test that imports the solution", _add(),
        f"{_FUNCTION}```python\nfrom solution import f\nprint(f(1))\n```", 1),
    Case("a usage block that reads input", _add(),
        f"{_FUNCTION}```python\nprint(f(int(input())))\n```", 1),
    Case("a quoted fence", _double(), _indented(_SCRIPT, "> "), 1),
    Case("a fence with attributes", _double(), _SCRIPT.replace("python", 'python title="main.py"'),
        1),
    Case("carriage returns", _double(), _SCRIPT.replace("\n", "\r\n"), 1),
    Case("a driver after a class", _double(), (
            "```python\nclass Solution:\n    def double(self, n):\n        return 2 * n\n```\n"
            "```python\nprint(Solution().double(int(input())))\n```"
        ), 1),
]  # fmt: skip


def _call(name: str, program: str, output: Any, grade: int, comparing: Any = FLOAT) -> Case:
    """f() returns `program` and is to return `output`, which was read from JSON."""
    reference = calls("f", [Call(arguments=[], output=output)], "", comparing)
    return Case(
        name,
        reference,
        f"```python\nfrom fractions import Fraction\ndef f():\n    return {program}\n```",
        grade,
    )


NAN = float("nan")
VALUES = [
    _call("a sum of floats", "0.1 + 0.2", 0.3, 1),
    _call("a sum of floats under exact", "0.1 + 0.2", 0.3, 0, EXACT),
    _call("a sum of floats under TACO's", "0.1 + 0.2", 0.3, 1, AS_TACO),
    _call("floats in lists in dictionaries", "{'a': [(0.1 + 0.2,)]}", {"a": [[0.3]]}, 1),
    _call("within 1e-6 of a large number", "1000000.5", 1000000.0, 1),
    _call("beyond 1e-6 of a large number", "1000002.0", 1000000.0, 0),
    _call("within 1e-6 of zero", "5e-7", 0.0, 1),
    _call("beyond 1e-6 of zero", "2e-6", 0.0, 0),
    _call("relative and absolute are not added", "1.0000015", 1.0, 0),
    _call("within TACO's 1e-5", "1.000005", 1.0, 1, AS_TACO),
    _call("beyond the default, within TACO's", "1.000005", 1.0, 0),
    _call("beyond TACO's of zero", "1e-7", 0.0, 0, AS_TACO),
    _call("large integers are exact", "10**17 + 1", 10**17, 0),
    _call("an integer for a float", "3", 3.0, 1),
    _call("a float for an integer", "3.0", 3, 1),
    _call("a fraction for a float", "Fraction(1, 3)", 1 / 3, 1),
    _call("infinity", "float('inf')", float("inf"), 1),
    _call("minus infinity for infinity", "-float('inf')", float("inf"), 0),
    _call("a large number for infinity", "1e308", float("inf"), 0),
    _call("an integer too large for a float", "10**400", 1.5, 0),
    _call("True for 1", "True", 1, 0),
    _call("1 for True", "1", True, 0),
    _call("True for True", "[True, False]", [True, False], 1),
    _call("True for 1 under exact", "True", 1, 1, EXACT),
    _call("True for 1 under TACO's", "[True]", [1], 0, AS_TACO),
    _call("integer keys", "{1: 'a', 2: 'b'}", {"1": "a", "2": "b"}, 1),
    _call("integer keys under exact", "{1: {2: 3}}", {"1": {"2": 3}}, 1, EXACT),
    _call("other keys of JSON", "{1.5: 1, True: 2, None: 3}", {"1.5": 1, "true": 2, "null": 3}, 1),
    _call("other integer keys", "{1: 'a'}", {"2": "a"}, 0),
    _call("a missing key", "{1: 'a'}", {"1": "a", "2": "b"}, 0),
    _call("not a number", "float('nan')", NAN, 1),
    _call("not a number in a list under exact", "[float('nan'), 1]", [NAN, 1], 1, EXACT),
    _call("a number for not a number", "1.0", NAN, 0),
    _call("a tuple for a list", "(1, (2, 3))", [1, [2, 3]], 1, EXACT),
    _call("a set for a list", "{1, 2}", [1, 2], 0),
    _call("a text for a number", "'0.3'", 0.3, 0),
    _call("None for an empty list", "None", [], 0),
]  # fmt: skip


def _text(name: str, printed: str, wanted: str, grade: int, comparing: Any = FLOAT) -> Case:
    reference = stdin([StdinCase(input="", output=wanted)], "", comparing)
    return Case(name, reference, f"```python\nprint({printed!r})\n```", grade)


TEXTS = [
    _text("a third", "0.3333333333333333", "0.333333", 1),
    _text("a third under exact", "0.3333333333333333", "0.333333", 0, EXACT),
    _text("a third under TACO's", "0.3333333333333333", "0.33333", 1, AS_TACO),
    _text("a third with five digits", "0.3333333333333333", "0.33333", 0),
    _text("a third with four digits under TACO's", "0.3333333333333333", "0.3333", 0, AS_TACO),
    _text("a rounded number under TACO's", "2.71828182", "2.71827", 1, AS_TACO),
    _text("another way to write a decimal under exact", "1.50 2e0", "1.5 2", 1, EXACT),
    _text("a decimal beside a word under exact", "x 1.50", "x 1.5", 0, EXACT),
    _text("a decimal beside a word", "x 1.50", "x 1.5", 1),
    _text("long decimals under exact", "50000000000000001", "50000000000000000", 0, EXACT),
    _text("long integers", "50000000000000001", "50000000000000000", 0),
    _text("an integer and its neighbour under TACO's", "1000001", "1000000", 0, AS_TACO),
    _text("an integer written as a float", "3.0", "3", 1),
    _text("leading white space", "  1\n 2", "1\n2", 1, EXACT),
    _text("leading white space in float", "  *\n ***", "*\n***", 1),
    _text("a blank line at the end", "1\n\n", "1", 1),
    _text("a blank line too many", "1\n\n2", "1\n2", 0),
    _text("numbers on other lines", "1 2", "1\n2", 0),
    _text("nan in another spelling", "NaN", "nan", 0),
    _text("infinity in another spelling", "inf", "Infinity", 0),
    _text("other case", "YES", "Yes", 0),
    _text("words with two spaces", "a  b", "a b", 1),
    _text("words with two spaces under exact", "a  b", "a b", 0, EXACT),
]  # fmt: skip
