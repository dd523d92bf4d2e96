"""Bodies of every shape up to the limit: refused or read within half a second of processor time and
little memory.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.generator.endpoint.hostile_bodies import BODIES, check, measured


@functools.cache
def results() -> dict[str, dict[str, Any]]:
    return measured(BODIES)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", BODIES)
def test_a_body_takes_little(name: str) -> None:
    check(name, results()[name])
