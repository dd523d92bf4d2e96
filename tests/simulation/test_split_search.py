"""The search for the best split against simulating every split, for more random rates than
test_split.py has.
"""

from __future__ import annotations

import pytest

from tests.simulation.split_search import check_few, check_many


@pytest.mark.parametrize("seed", range(7))
def test_few_splits_give_what_simulating_all_of_them_gives(seed: int) -> None:
    check_few(seed)


@pytest.mark.parametrize("seed", [0, 3])
def test_of_many_splits_one_within_the_margin_is_found_with_few_simulations(seed: int) -> None:
    check_many(seed)
