"""Frames of words, whole and as changes: every bit pattern comes back, nothing else is taken."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollcast.weights.transport.errors import GroupError
from rollcast.weights.transport.word_code import WORDS, Words, decode, encode


def random_words(length: int, item_bytes: int, seed: int) -> Words:
    words = np.random.default_rng(seed).bytes(length * item_bytes)
    return np.frombuffer(words, WORDS[item_bytes]).copy()


@given(
    item_bytes=st.sampled_from([1, 2, 4, 8]),
    length=st.integers(0, 3000),
    changed=st.sets(st.integers(0, 2999), max_size=60),
    seed=st.integers(0, 9),
)
def test_the_base_becomes_the_version(
    item_bytes: int, length: int, changed: set[int], seed: int
) -> None:
    old = random_words(length, item_bytes, seed)
    new = old.copy()
    places = [place for place in changed if place < length]
    new[places] = random_words(len(places), item_bytes, seed + 1)
    target = old.copy()
    decode(encode(new, old), target)
    assert target.tobytes() == new.tobytes()
    whole = np.zeros(length, WORDS[item_bytes])
    decode(encode(new, None), whole)
    assert whole.tobytes() == new.tobytes()


@pytest.mark.parametrize(("rate", "most"), [(1e-6, 0.015), (1e-5, 0.065), (1e-4, 0.21)])
def test_an_update_is_short(rate: float, most: float) -> None:
    """Shares as measured: 2.2, 13.9 and 60 % of the weights change (lab/notes.md)."""
    generator = torch.Generator().manual_seed(0)
    old = 0.02 * torch.randn(1 << 20, generator=generator)
    new = old - 0.6 * rate * torch.randn(1 << 20, generator=generator)
    words = [weights.bfloat16().view(torch.int16).numpy().view(np.uint16) for weights in (new, old)]
    assert len(encode(words[0], words[1])) / words[0].nbytes < most


@given(st.binary(max_size=200), st.integers(0, 300), st.integers(0, 255))
def test_a_frame_that_is_damaged_is_refused_or_writes_inside_its_stretch(
    noise: bytes, place: int, byte: int
) -> None:
    old = random_words(100, 2, 1)
    new = old.copy()
    new[10:40] += 1
    frame = bytearray(encode(new, old))
    frame[place % len(frame)] = byte
    for data in (noise, bytes(frame), bytes(frame[:place])):
        guarded = random_words(300, 2, 2)
        before = guarded.copy()
        with contextlib.suppress(GroupError):
            decode(data, guarded[100:200])
        assert (guarded[:100] == before[:100]).all()
        assert (guarded[200:] == before[200:]).all()
