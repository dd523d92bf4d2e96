"""The model as a generator runs it: token by token over a KV cache whose entries are of the
versions that computed them.

    the sampled tokens of one version between two marks are one forward pass over the entries;
    at a mark the cache is cut back to the entries that were kept, and the next pass rebuilds the
    rest

The state of a recurrent layer cannot be cut back: its parts are computed again from the first token
on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rollcast.config.model import Model
from rollcast.recorded.array_file import Arrays
from rollcast.rollouts.records import Branch, LegKind, Rollout, TokenIds
from rollcast.trainer.learner.adapters import ADAPTER, adapted_layers, add_adapters
from rollcast.trainer.learner.router_replay import RouterReplay
from rollcast.wire.version import PolicyVersion

SequenceVersions = NDArray[np.object_]
"""[L] version that sampled each token."""


class SampledPiece(NamedTuple):
    """Consecutive sampled tokens of one pass."""

    start: int
    end: int
    logits: Tensor
    """[end - start, vocabulary] before the temperature."""


def read_plain_model(model: Model, *, router_replay: bool) -> tuple[Any, RouterReplay | None]:
    """The run's model in Hugging Face's own code, in float32, with its adapters."""
    from transformers import AutoModelForCausalLM

    causal_lm = AutoModelForCausalLM.from_pretrained(model.path, dtype=torch.float32)
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
        replay: RouterReplay | None,
        load_weights: Callable[[PolicyVersion], Arrays],
    ) -> None:
        self._causal_lm = causal_lm
        self._replay = replay
        self._load_weights = load_weights
        self._parameters = dict(causal_lm.named_parameters())
        self._loaded: PolicyVersion | None = None
        types = getattr(causal_lm.config, "layer_types", None) or ()
        self._is_recurrent = any("attention" not in kind or "linear" in kind for kind in types)
        self._cache: Any = None
        self._parts: list[tuple[PolicyVersion, int]] = []
        """Which version computed the entries up to which number."""
        self._input_ids = torch.zeros(1, 0, dtype=torch.int64)
        self._experts: Tensor | None = None

    @torch.no_grad()
    def sampled_pieces(
        self, prompt: TokenIds, sequence: Rollout | Branch, versions: SequenceVersions
    ) -> Iterator[SampledPiece]:
        """Run a sequence as the record says that it was sampled."""
        self._begin(prompt, sequence)
        marks: dict[int, list[Any]] = {}
        for mark in sequence.kv_marks:
            marks.setdefault(mark.position, []).append(mark)
        for start, end in find_pieces(sequence, versions, marks):
            *rebuilt, last = marks.get(start) or [None]
            for mark in rebuilt:
                self._keep(mark.num_kept)
                self._run(mark.version, len(prompt) + start)
            if last is not None:
                self._keep(last.num_kept)
            logits = self._run(versions[start], len(prompt) + end - 1)
            yield SampledPiece(start, end, logits[start - end :])

    def _begin(self, prompt: TokenIds, sequence: Rollout | Branch) -> None:
        token_ids = np.concatenate([prompt, sequence.token_ids]).astype(np.int64)
        self._input_ids = torch.from_numpy(token_ids)[None]
        experts = sequence.routed_experts
        self._experts = None
        if self._replay is not None and experts is not None:
            self._experts = torch.from_numpy(experts.astype(np.int16))[None]
        self._clear()

    def _clear(self) -> None:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._causal_lm.config)
        self._parts = []

    @property
    def _num_entries(self) -> int:
        return self._parts[-1][1] if self._parts else 0

    def _run(self, version: PolicyVersion, until: int) -> Tensor:
        """Feed the inputs that the cache lacks of the first `until`; logits of those."""
        if version != self._loaded:
            weights = self._load_weights(version)
            if unknown := weights.keys() - self._parameters.keys():
                raise ValueError(f"it has no weight {min(unknown)}")
            for name, array in weights.items():
                self._parameters[name].copy_(torch.from_numpy(array))
            self._loaded = version
        begin = self._num_entries
        if self._replay is not None:
            self._replay.use(None if self._experts is None else self._experts[:, begin:until])
        self._parts.append((version, until))
        outputs = self._causal_lm(
            input_ids=self._input_ids[:, begin:until], past_key_values=self._cache, use_cache=True
        )
        logits: Tensor = outputs.logits[0].float()
        return logits

    def _keep(self, num_entries: int) -> None:
        """Cut the cache back. An engine that had gone on before a turn's end was noticed may have
        kept an entry more than the record's tokens needed.
        """
        if num_entries > self._num_entries:
            assert self._loaded is not None
            self._run(self._loaded, num_entries)
        if num_entries == self._num_entries:
            return
        parts = [(version, min(end, num_entries)) for version, end in self._parts]
        if num_entries and not self._is_recurrent:
            self._cache.crop(num_entries - self._num_entries)
            self._parts = [part for part in parts if part[1] > 0]
            return
        self._clear()
        for version, end in parts:
            if self._num_entries < end:
                self._run(version, end)


def sampled_mask(sequence: Rollout | Branch) -> NDArray[np.bool_]:
    """[L] True for tokens that have a log-prob: neither forced nor given. An environment may take
    the loss from sampled ones too.
    """
    mask = np.ones(len(sequence.token_ids), dtype=np.bool_)
    spans = sequence.loss_masked
    if sequence.legs:
        without = (LegKind.GIVEN, LegKind.INTERRUPTION_PHRASE)
        spans = tuple((leg.start, leg.end) for leg in sequence.legs if leg.kind in without)
    for start, end in spans:
        mask[start:end] = False
    return mask


def recorded_versions(sequence: Rollout | Branch) -> SequenceVersions:
    versions = np.empty(len(sequence.token_ids), dtype=object)
    for span in sequence.version_spans:
        for at in range(span.start, span.end):
            versions[at] = span.version
    return versions


def find_pieces(
    sequence: Rollout | Branch, versions: SequenceVersions, marks: dict[int, list[Any]]
) -> Iterator[tuple[int, int]]:
    """Ranges of sampled tokens of one version, without a mark inside."""
    sampled = sampled_mask(sequence)
    start: int | None = None
    for at in range(len(sampled)):
        if start is not None and (
            not sampled[at] or at in marks or versions[at] != versions[start]
        ):
            yield start, at
            start = None
        if sampled[at] and start is None:
            start = at
    if start is not None:
        yield start, len(sampled)
