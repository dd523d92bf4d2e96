"""The model as a generator runs it: token by token over a KV cache whose entries are of the
versions that computed them.

    the sampled tokens of one version between two marks are one forward pass over the entries;
    at a mark the cache is cut back to the entries that were kept, and the next pass rebuilds the
    rest

The state of a recurrent layer cannot be cut back: it is computed again from the first token on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rollcast.config.model import Model
from rollcast.recorded.array_file import Arrays
from rollcast.rollouts.records import Branch, KvMark, Rollout, TokenIds
from rollcast.trainer.learner.adapters import ADAPTER, adapted_layers, add_adapters
from rollcast.trainer.learner.router_replay import RouterReplay
from rollcast.trainer.replay.sampled_tokens import SequenceVersions, sampled_mask
from rollcast.wire.version import PolicyVersion


class SampledSegment(NamedTuple):
    """Consecutive sampled tokens of one forward pass."""

    start: int
    end: int
    logits: Tensor
    """[end - start, vocabulary] before the temperature."""


def read_plain_model(model: Model, *, router_replay: bool) -> tuple[Any, RouterReplay | None]:
    """The run's model in Hugging Face's own code, in float32, with its adapters."""
    from transformers import AutoModelForCausalLM

    causal_lm = AutoModelForCausalLM.from_pretrained(
        model.path, dtype=torch.float32, trust_remote_code=model.trust_remote_code
    )
    if model.lora is not None:
        add_adapters(causal_lm, model.lora)
        for layer in adapted_layers(causal_lm).values():
            for factor in (layer.lora_A[ADAPTER], layer.lora_B[ADAPTER]):
                # They have a shape alone so far.
                factor.weight = nn.Parameter(torch.zeros(factor.weight.shape))
    causal_lm.eval()
    return causal_lm, RouterReplay(causal_lm) if router_replay else None


class CachedModel:
    """One model, into which the weights of versions are copied as they are needed."""

    def __init__(
        self,
        causal_lm: Any,
        router_replay: RouterReplay | None,
        load_weights: Callable[[PolicyVersion], Arrays],
    ) -> None:
        self._causal_lm = causal_lm
        self._router_replay = router_replay
        self._load_weights = load_weights
        self._parameters = dict(causal_lm.named_parameters())
        self._loaded: PolicyVersion | None = None
        types = getattr(causal_lm.config, "layer_types", None) or ()
        self._is_recurrent = any("attention" not in kind or "linear" in kind for kind in types)
        self._cache: Any = None
        self._entry_spans: list[tuple[PolicyVersion, int]] = []
        """The version that computed the cache's entries, up to which number."""
        self._input_ids = torch.zeros(1, 0, dtype=torch.int64)
        self._experts: Tensor | None = None

    @torch.no_grad()
    def sampled_segments(
        self, prompt: TokenIds, sequence: Rollout | Branch, versions: SequenceVersions
    ) -> Iterator[SampledSegment]:
        """Run a sequence as the record says that it was sampled."""
        token_ids = np.concatenate([prompt, sequence.token_ids]).astype(np.int64)
        self._input_ids = torch.from_numpy(token_ids)[None]
        self._experts = None
        if self._router_replay is not None and sequence.routed_experts is not None:
            self._experts = torch.from_numpy(sequence.routed_experts.astype(np.int16))[None]
        self._clear_cache()
        marks: dict[int, list[KvMark]] = {}
        for mark in sequence.kv_marks:
            marks.setdefault(mark.position, []).append(mark)
        for start, end in _find_segments(sequence, versions, marks):
            segment_marks = marks.get(start, [])
            for number, mark in enumerate(segment_marks, start=1):
                self._crop_cache(mark.num_kept)
                if number < len(segment_marks):  # the segment's own version rebuilds after the last
                    self._forward(mark.version, len(prompt) + start)
            logits = self._forward(versions[start], len(prompt) + end - 1)
            yield SampledSegment(start, end, logits[start - end :])

    @property
    def _num_entries(self) -> int:
        return self._entry_spans[-1][1] if self._entry_spans else 0

    def _clear_cache(self) -> None:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._causal_lm.config)
        self._entry_spans = []

    def _forward(self, version: PolicyVersion, end: int) -> Tensor:
        """Feed the inputs that the cache lacks of the first `end`; logits of those."""
        if version != self._loaded:
            weights = self._load_weights(version)
            if unknown := weights.keys() - self._parameters.keys():
                raise ValueError(f"it has no weight {min(unknown)}")
            for name, array in weights.items():
                self._parameters[name].copy_(torch.from_numpy(array))
            self._loaded = version
        start = self._num_entries
        if self._router_replay is not None:
            self._router_replay.use(None if self._experts is None else self._experts[:, start:end])
        self._entry_spans.append((version, end))
        outputs = self._causal_lm(
            input_ids=self._input_ids[:, start:end], past_key_values=self._cache, use_cache=True
        )
        logits: Tensor = outputs.logits[0].float()
        return logits

    def _crop_cache(self, num_entries: int) -> None:
        """Cut the cache back. An engine that had gone on before a turn's end was noticed may have
        kept an entry more than the record's tokens needed.
        """
        if num_entries > self._num_entries:
            assert self._loaded is not None
            self._forward(self._loaded, num_entries)
        if num_entries == self._num_entries:
            return
        spans = [(version, min(end, num_entries)) for version, end in self._entry_spans]
        if num_entries and not self._is_recurrent:
            self._cache.crop(num_entries - self._num_entries)
            self._entry_spans = [span for span in spans if span[1] > 0]
            return
        self._clear_cache()
        for version, end in spans:
            if self._num_entries < end:
                self._forward(version, end)


def _find_segments(
    sequence: Rollout | Branch, versions: SequenceVersions, marks: dict[int, list[KvMark]]
) -> Iterator[tuple[int, int]]:
    """Ranges of sampled tokens of one version, without a mark inside."""
    is_sampled = sampled_mask(sequence)
    start: int | None = None
    for position in range(len(is_sampled)):
        if start is not None and (
            not is_sampled[position] or position in marks or versions[position] != versions[start]
        ):
            yield start, position
            start = None
        if is_sampled[position] and start is None:
            start = position
    if start is not None:
        yield start, len(is_sampled)
