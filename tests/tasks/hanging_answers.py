"""Answers that the math parser would take hours for."""

from __future__ import annotations

from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.verifiers import Grade

BUSY_ATTEMPTS = 5
HANGING = {
    "a tower": r"\boxed{10^{10^{10}}}",
    "a higher tower": r"\boxed{9^{9^{9^{9}}}}",
    "a tower without a box": r"The answer is $10^{10^{10}}$.",
    "a factorial": r"\boxed{\frac{1}{(10^9)!}}",
    "factorials of factorials": r"\boxed{5!!!!!!!!!!!}",
    "a sum": r"\boxed{\sum_{k=1}^{10^9} \frac{1}{k^2}}",
    "a product": r"\boxed{\prod_{k=1}^{10^8} k}",
    "a binomial": r"\boxed{\binom{10^9}{5\cdot 10^8}}",
    "a large set": r"\boxed{\{" + ",".join(map(str, range(20_000))) + r"\}}",
    "nested fractions": r"\boxed{" + r"\frac{1}{1+" * 500 + "1" + "}" * 500 + "}",
    "a polynomial": r"\boxed{(x+y+z+w)^{200}}",
    "brackets": r"\boxed{" + "(" * 3000 + "1" + ")" * 3000 + "}",
    "a box in a box": "\\boxed{" * 20_000,
    "spaces": r"\boxed{5" + " " * 200_000 + "5}",
}


def verdict(sandbox: Sandbox, answer: str) -> Grade:
    """The grade by the reference 42; asked again while the machine is too busy for one."""
    for _ in range(BUSY_ATTEMPTS):
        grade = sandbox.grade("math", answer, '"42"')
        if grade.reason != "busy":
            break
    return grade
