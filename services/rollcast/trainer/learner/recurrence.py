"""The chunks in which the trainer computes a recurrent layer (GatedDeltaNet: Qwen3-Next, Qwen3.5).

Transformers' own code sums the logarithms of the decays over a chunk, and takes differences of
these sums. With strong decays the sum over its 64 tokens is some hundred, and a float32 of that
size is exact to 3e-5 alone. The norm behind it made that an error of 2e-4 in a log-probability,
when a random model was compared with float64. With 32 tokens it was 3e-5, and the layer took less
time. flash-linear-attention ignores the number.
"""

import sys
from functools import partial
from typing import Any

from rollcast.memory.recurrence import CHUNK_TOKENS

RULE = "torch_chunk_gated_delta_rule"
"""Transformers' name of it in the file of each model."""


def shorten_chunks(causal_lm: Any) -> None:
    """Let the recurrent layers compute in chunks of CHUNK_TOKENS. Other models stay as they are."""
    for name in {type(module).__module__ for module in causal_lm.modules()}:
        code = sys.modules[name]
        rule = getattr(code, RULE, None)
        # A model of the same file may have replaced it already.
        if rule is not None and not isinstance(rule, partial):
            setattr(code, RULE, partial(rule, chunk_size=CHUNK_TOKENS))
