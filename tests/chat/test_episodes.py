"""Random episodes: the tokens of a turn extend those of the turn before, as the model's template
has them.
"""

from __future__ import annotations

import pytest

from testkit.chat_tokenizers import Kind
from tests.chat.random_episodes import KINDS, check_episodes

NUM_EPISODES = 40
"""In each format."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_tokens_of_a_turn_extend_those_of_the_turn_before(kind: Kind) -> None:
    check_episodes(kind, NUM_EPISODES)
