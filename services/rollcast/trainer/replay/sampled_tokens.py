"""Which tokens of a sequence a generator sampled, and under which versions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rollcast.rollouts.records import Branch, LegKind, Rollout

SequenceVersions = NDArray[np.object_]
"""[L] version that sampled each token; None = not recorded."""


def sampled_mask(sequence: Rollout | Branch) -> NDArray[np.bool_]:
    """[L] True for tokens that have a log-prob: neither forced nor given. An environment may take
    the loss from sampled ones too.
    """
    mask = np.ones(len(sequence.token_ids), dtype=np.bool_)
    spans = sequence.loss_masked
    if sequence.legs:
        not_sampled = (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE)
        spans = tuple((leg.start, leg.end) for leg in sequence.legs if leg.kind in not_sampled)
    for start, end in spans:
        mask[start:end] = False
    return mask


def recorded_versions(sequence: Rollout | Branch) -> SequenceVersions:
    versions = np.empty(len(sequence.token_ids), dtype=object)
    for span in sequence.version_spans:
        for position in range(span.start, span.end):
            versions[position] = span.version
    return versions
