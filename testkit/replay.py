"""The oracle of token-exactness: plain Hugging Face code that repeats what the generator says it
did.

Every version span is run with that version's weights on the KV cache that the earlier spans left
behind; at every KV mark the cache is cut back to the kept entries and the rest is computed again.
The state of a recurrent layer cannot be cut back: it is computed again from the first token on,
each part with the weights that computed it before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.rollouts.records import Branch, LegKind, Rollout
from rollcast.wire.version import PolicyVersion


def replay_logprobs(
    rollout: Rollout | Branch,
    prompt: Sequence[int],
    weights: Mapping[PolicyVersion, Mapping[str, Any]],
    model: Any,
    temperature: float = 1.0,
) -> NDArray[np.float64]:
    """Log-prob of every token [L], 0 if it was forced or given; of an episode's rollout those of
    its first sequence.

    `model`: a float32 causal LM; its weights are overwritten.
    """
    import torch

    num_prompt, num_tokens = len(prompt), len(rollout.token_ids)
    token_ids = torch.tensor([[*prompt, *rollout.token_ids.tolist()]])
    version_of = {
        at: span.version for span in rollout.version_spans for at in range(span.start, span.end)
    }
    assert sorted(version_of) == list(range(num_tokens)), "version spans do not cover the rollout"
    forced = {at for start, end in _find_forced_spans(rollout) for at in range(start, end)}
    marks_at: dict[int, list[Any]] = {}
    for mark in rollout.kv_marks:
        marks_at.setdefault(mark.position, []).append(mark)
    logprobs = np.zeros(num_tokens)
    replayed = _Replayed(model, weights, token_ids)
    at = 0
    while at < num_tokens:
        if at in forced:
            at += 1
            continue
        for mark in marks_at.get(at, [])[:-1]:
            replayed.keep(mark.num_kept)
            replayed.run(mark.version, num_prompt + at)
        if at in marks_at:
            assert marks_at[at][-1].version == version_of[at]
            replayed.keep(marks_at[at][-1].num_kept)
        end = at + 1
        while (
            end < num_tokens
            and end not in forced
            and end not in marks_at
            and version_of[end] == version_of[at]
        ):
            end += 1
        logits = replayed.run(version_of[at], num_prompt + end - 1)[-(end - at) :]
        chosen = token_ids[0, num_prompt + at : num_prompt + end]
        rows = torch.log_softmax(logits / temperature, dim=-1)
        logprobs[at:end] = rows[torch.arange(end - at), chosen].numpy()
        at = end
    return logprobs


def _find_forced_spans(rollout: Rollout | Branch) -> Sequence[tuple[int, int]]:
    """Tokens that were not sampled. An environment may take the loss from sampled ones too."""
    if not rollout.legs:
        return rollout.loss_masked
    return [
        (leg.start, leg.end)
        for leg in rollout.legs
        if leg.kind in (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE)
    ]


class _Replayed:
    """A model and its cache so far, with the version that computed each part of it."""

    def __init__(
        self, model: Any, weights: Mapping[PolicyVersion, Mapping[str, Any]], token_ids: Any
    ) -> None:
        self._model = model
        self._weights = weights
        self._token_ids = token_ids
        self._loaded: PolicyVersion | None = None
        self._cache: Any = None
        self._parts: list[tuple[PolicyVersion, int]] = []
        self._is_recurrent = "linear_attention" in (
            getattr(model.config, "layer_types", None) or ()
        )
        self._begin()

    def run(self, version: PolicyVersion, until: int) -> Any:
        """Feed what the cache does not hold yet of the first `until` inputs; logits of those."""
        import torch

        if version != self._loaded:
            self._model.load_state_dict(self._weights[version], strict=False)
            self._loaded = version
        inputs = self._token_ids[:, self._num_entries : until]
        self._parts.append((version, until))
        with torch.no_grad():
            logits = self._model(
                input_ids=inputs, past_key_values=self._cache, use_cache=True
            ).logits
        return logits[0].double()

    def keep(self, num_entries: int) -> None:
        """Forget all entries except the first `num_entries`.

        A text that ends a turn is found outside the engine, which meanwhile goes on: it may have
        computed the turn's last token too.
        """
        if num_entries > self._num_entries:
            assert self._loaded is not None
            self.run(self._loaded, num_entries)
        if num_entries and not self._is_recurrent:
            self._cache.crop(num_entries)
            self._parts = [(version, min(end, num_entries)) for version, end in self._parts]
            return
        parts = self._parts
        self._begin()
        for version, end in parts:
            if self._num_entries < num_entries:
                self.run(version, min(end, num_entries))

    @property
    def _num_entries(self) -> int:
        return self._parts[-1][1] if self._parts else 0

    def _begin(self) -> None:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._model.config)
        self._parts = []
