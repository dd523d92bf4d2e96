from __future__ import annotations

from collections.abc import Iterator

import pytest

from testkit.forecast.fitted_once import fitted_once


@pytest.fixture(scope="module", autouse=True)
def _fitted_once() -> Iterator[None]:
    with fitted_once():
        yield
