"""How torch is told to allocate GPU memory."""

from __future__ import annotations

import pytest

from rollcast.trainer.allocator import use_expandable_segments


def test_segments_grow_unless_the_user_has_decided() -> None:
    environment: dict[str, str] = {}
    use_expandable_segments(environment)
    assert environment == {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"])
def test_a_users_own_setting_stays(name: str) -> None:
    environment = {name: "max_split_size_mb:512"}
    use_expandable_segments(environment)
    assert environment == {name: "max_split_size_mb:512"}
