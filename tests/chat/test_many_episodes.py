"""A proof: random episodes by the hundred in each format."""

from __future__ import annotations

import pytest

from testkit.chat_tokenizers import Kind
from tests.chat.random_episodes import KINDS, check_episodes

NUM_EPISODES = 250
"""In each format."""


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_episodes_extend_their_tokens(kind: Kind) -> None:
    check_episodes(kind, NUM_EPISODES)
