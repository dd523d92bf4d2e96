"""The oracle of token-exactness: plain Hugging Face code that repeats what the generator says it did.

Every version span is run with that version's weights on the KV cache that the earlier spans left behind; at every KV
mark the cache is cut back to the kept entries and the rest is computed again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.rollouts.records import Rollout
from rollcast.wire.version import PolicyVersion


def replay_logprobs(
    rollout: Rollout,
    prompt: Sequence[int],
    weights: Mapping[PolicyVersion, Mapping[str, Any]],
    model: Any,
    temperature: float = 1.0,
) -> NDArray[np.float64]:
    """Log-prob of every token [L], 0 if it was forced. `model`: a float32 causal LM; its weights are overwritten."""
    import torch
    from transformers import DynamicCache

    num_prompt, num_tokens = len(prompt), rollout.num_tokens
    token_ids = torch.tensor([[*prompt, *rollout.token_ids.tolist()]])
    version_of = {at: span.version for span in rollout.version_spans for at in range(span.start, span.end)}
    assert sorted(version_of) == list(range(num_tokens)), "version spans do not cover the rollout"
    forced = {at for start, end in rollout.loss_masked for at in range(start, end)}
    marks_at: dict[int, list[Any]] = {}
    for mark in rollout.kv_marks:
        marks_at.setdefault(mark.position, []).append(mark)
    logprobs = np.zeros(num_tokens)
    cache = DynamicCache()
    loaded: PolicyVersion | None = None

    def run(version: PolicyVersion, until: int) -> Any:
        """Feed what the cache does not hold yet of the first `until` inputs; logits of those."""
        nonlocal loaded
        if version != loaded:
            model.load_state_dict(weights[version], strict=False)
            loaded = version
        start = cache.get_seq_length()
        with torch.no_grad():
            return model(input_ids=token_ids[:, start:until], past_key_values=cache, use_cache=True).logits[0].double()

    def keep(num_entries: int) -> None:
        nonlocal cache
        assert num_entries <= cache.get_seq_length()
        if num_entries:
            cache.crop(num_entries)
        else:
            cache = DynamicCache()

    at = 0
    while at < num_tokens:
        if at in forced:
            at += 1
            continue
        for mark in marks_at.get(at, [])[:-1]:
            keep(mark.kept)
            run(mark.version, num_prompt + at)
        if at in marks_at:
            assert marks_at[at][-1].version == version_of[at]
            keep(marks_at[at][-1].kept)
        end = at + 1
        while end < num_tokens and end not in forced and end not in marks_at and version_of[end] == version_of[at]:
            end += 1
        logits = run(version_of[at], num_prompt + end - 1)[-(end - at) :]
        chosen = token_ids[0, num_prompt + at : num_prompt + end]
        rows = torch.log_softmax(logits / temperature, dim=-1)
        logprobs[at:end] = rows[torch.arange(end - at), chosen].numpy()
        at = end
    return logprobs
