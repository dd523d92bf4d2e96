"""The built-in task: additions answered digit by digit, from the right, with carries.

    95+7=570=12;901=10;|102

Each worked step `xyc=uv;` adds the digits x and y and the carry c to the two-digit sum uv; the
answer follows `|`.
"""

import random
from itertools import zip_longest

from rollcast.config.datasets import ArithmeticDataset
from rollcast.config.errors import UserError

CHARACTERS = "0123456789+-*=?;|. "
"""What prompts and answers are written with: the vocabulary of the demo's tokenizer."""


def draw_operands(rng: random.Random, max_digits: int) -> tuple[int, int]:
    """Two operands whose numbers of digits are drawn from 1..max_digits,
    the middle ones oftener.
    """
    digits = range(1, max_digits + 1)
    weights = [min(d, max_digits + 1 - d) for d in digits]
    a, b = rng.choices(digits, weights, k=2)
    return _draw_number(rng, a), _draw_number(rng, b)


def _draw_number(rng: random.Random, digits: int) -> int:
    return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)


def prompt_text(a: int, b: int) -> str:
    return f"{a}+{b}="


def worked_answer(a: int, b: int, rng: random.Random, noise: float) -> str:
    """The steps and the answer they lead to; each step's sum is replaced by a random one with
    probability `noise`.
    """
    carry = 0
    steps = ""
    answer = ""
    for x, y in zip_longest(reversed(str(a)), reversed(str(b)), fillvalue="0"):
        total = int(x) + int(y) + carry
        if rng.random() < noise:
            total = rng.randrange(20)
        steps += f"{x}{y}{carry}={total // 10}{total % 10};"
        carry = total // 10
        answer += str(total % 10)
    if carry:
        answer += "1"
    return f"{steps}|{int(answer[::-1])}"


def distinct_additions(dataset: ArithmeticDataset, count: int) -> list[tuple[int, int]]:
    """`count` different pairs of operands, the same ones for the same seed.

    Raises UserError if operands of that few digits do not give that many pairs.
    """
    rng = random.Random(f"arithmetic/{dataset.seed}")
    pairs: dict[tuple[int, int], None] = {}
    # Draws before the sizes are said to be exhausted
    for _ in range(200 * count):
        if len(pairs) == count:
            break
        pairs[draw_operands(rng, dataset.max_digits)] = None
    if len(pairs) < count:
        raise UserError(
            f"tasks.dataset.size = {dataset.size}: only {len(pairs)} different additions with "
            f"evaluation included were found for max_digits = {dataset.max_digits}, {count} are "
            "needed; lower size or raise max_digits"
        )
    return list(pairs)
