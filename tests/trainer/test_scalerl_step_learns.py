"""The example that is a whole step, run as a user runs it: twenty steps, in which it learns."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.module_of import load_module

pytestmark = pytest.mark.timeout(600)
"""It computes for half a minute, on a busy machine for minutes."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "scalerl_step.py"


def test_it_learns() -> None:
    rewards = load_module(EXAMPLE).main(num_steps=20)
    assert sum(rewards[-5:]) > 1.5 * sum(rewards[:5])
