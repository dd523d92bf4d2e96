"""The generators' part: every token's log-prob under the version that its label names, and what
explains one that is another: a label, a temperature, or other weights.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from rollcast.recorded.array_file import Arrays
from rollcast.rollouts.records import Branch, Rollout, TokenIds
from rollcast.trainer.replay.cached_model import (
    CachedModel,
    SequenceVersions,
    read_plain_model,
    recorded_versions,
    sampled_mask,
)
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch
from rollcast.trainer.replay.token_gaps import TokenGaps, TokenOrigin, tolerance
from rollcast.wire.version import PolicyVersion

LOGPROBS = "log-probs of its versions"


def check_labels(batch: RecordedBatch, report: ReplayReport) -> None:
    """Compare labels of versions and temperatures with the step's, without any weights."""
    bundle = batch.bundle
    recipe = batch.config.recipe
    oldest = bundle.version.step - recipe.schedule.max_staleness
    num_sequences = 0
    wrong_spans = []
    wrong_temperatures = []
    reason = ""
    for index, group in batch.groups:
        task = bundle.tasks[index]
        if {group.sampling.temperature, task.sampling.temperature} != {recipe.temperature}:
            wrong_temperatures.append((group.sequence, group.sampling.temperature))
        for place, rollout in enumerate(group.rollouts):
            for number, sequence in enumerate(rollout.sequences):
                num_sequences += 1
                versions = recorded_versions(sequence)
                impossible = [
                    at
                    for at, version in enumerate(versions)
                    if version is None or not oldest <= version.step <= bundle.version.step
                ]
                # The first token is enough to show it.
                if impossible:
                    wrong_spans.append(batch.place(index, place, number, impossible[0]))
    report.add(
        "generator",
        "version labels",
        num_sequences,
        len(wrong_spans),
        reason=f"a token has no version, or one outside {max(0, oldest)} to {bundle.version.step}",
        place=wrong_spans[0] if wrong_spans else None,
    )
    for group_sequence, temperature in wrong_temperatures[:1]:
        reason = f"group {group_sequence} has {temperature:g}, the recipe {recipe.temperature:g}"
    report.add(
        "generator",
        "temperature asked for",
        len(batch.groups),
        len(wrong_temperatures),
        reason=reason,
    )


def check_sampling(batch: RecordedBatch, report: ReplayReport, unusable: set[str]) -> None:
    """Replay the sampled tokens of every sequence whose versions were kept.

    `unusable`: versions whose weights are damaged.
    """
    bundle = batch.bundle
    usable = [version for version in bundle.kept_versions if str(version) not in unusable]

    # A generator's rollouts have few versions, and a replay of all of them comes back to each.
    @lru_cache(maxsize=4)
    def load_weights(version: PolicyVersion) -> Arrays:
        return bundle.load_weights(version)[0]

    config = batch.config
    causal_lm, replay = read_plain_model(config.model, router_replay=config.recipe.router_replay)
    sampler = _Replayed(batch, CachedModel(causal_lm, replay, load_weights), usable)
    gaps = TokenGaps(batch)
    num_left_out = 0
    for index, group in batch.groups:
        for place, rollout in enumerate(group.rollouts):
            for number, sequence in enumerate(rollout.sequences):
                versions = recorded_versions(sequence)
                if not {*versions, *(mark.version for mark in sequence.kv_marks)} <= set(usable):
                    num_left_out += 1
                    continue
                origin = TokenOrigin(index, place, number)
                # Forced tokens were not sampled, so their log-probs say nothing of the generator.
                positions = np.flatnonzero(sampled_mask(sequence))
                replayed = sampler.logprobs(origin, versions)[positions]
                recorded = sequence.logprobs[positions]
                gaps.add(origin, positions, recorded, replayed, "generator_replayed")
    how = sampler.explain(gaps) if gaps.different else ""
    gaps.report(report, "generator", LOGPROBS, how)
    if num_left_out:
        reason = f"{num_left_out} sequences: weights of their versions were not kept whole"
        report.not_checked("generator", LOGPROBS, reason)


class _Replayed:
    """Replays sequences of a batch."""

    def __init__(
        self, batch: RecordedBatch, model: CachedModel, usable: list[PolicyVersion]
    ) -> None:
        self._batch = batch
        self._model = model
        self._usable = usable

    def logprobs(self, origin: TokenOrigin, versions: SequenceVersions) -> NDArray[np.float64]:
        """[L], 0 where nothing was sampled."""
        temperature = self._batch.bundle.groups[origin.group].sampling.temperature
        prompt, sequence = self._tokens(origin)
        logprobs = np.zeros(len(sequence.token_ids))
        for start, end, logits in self._model.sampled_pieces(prompt, sequence, versions):
            chosen = torch.from_numpy(sequence.token_ids[start:end].astype(np.int64))
            rows = torch.log_softmax(logits.double() / temperature, dim=-1)
            logprobs[start:end] = rows[torch.arange(end - start), chosen].numpy()
        return logprobs

    def explain(self, gaps: TokenGaps) -> str:
        """A cause of the recorded log-probs of the worst sequence, in words."""
        worst = gaps.worst
        assert worst is not None
        origin = worst[0]
        _, sequence = self._tokens(origin)
        versions = recorded_versions(sequence)
        if relabelled := self._find_label(origin, versions, int(gaps.different[origin][0])):
            return relabelled
        asked = self._batch.bundle.groups[origin.group].sampling.temperature
        fitted = self._fit_temperature(origin, versions)
        if fitted is not None:
            return f"temperature: sampled with {fitted:.3g}, not with {asked:g}"
        return "weights: no kept version and no temperature explains them"

    def _find_label(
        self, origin: TokenOrigin, versions: SequenceVersions, first: int
    ) -> str | None:
        """Another version for the span with the first wrong token that makes all of them right."""
        _, sequence = self._tokens(origin)
        span = next(item for item in sequence.version_spans if item.start <= first < item.end)
        for version in self._usable:
            if version == span.version:
                continue
            relabelled = versions.copy()
            relabelled[span.start : span.end] = [version] * (span.end - span.start)
            if self._fits(origin, self.logprobs(origin, relabelled)):
                return f"version label: says {span.version}, sampled with {version}"
        return None

    def _fit_temperature(self, origin: TokenOrigin, versions: SequenceVersions) -> float | None:
        """The temperature with which the recorded log-probs are right; None = no temperature
        makes them right.
        """
        prompt, sequence = self._tokens(origin)
        rows: list[Tensor] = []
        positions: list[int] = []
        # Enough tokens to know one number; the logits of each are as many as the vocabulary.
        for start, end, logits in self._model.sampled_pieces(prompt, sequence, versions):
            rows.append(logits[: 256 - len(positions)].double())
            positions += range(start, end)[: len(rows[-1])]
            if len(positions) >= 256:
                break
        logits = torch.cat(rows)
        chosen = torch.from_numpy(sequence.token_ids[positions].astype(np.int64))
        recorded = torch.from_numpy(sequence.logprobs[positions].astype(np.float64))

        def gaps(log_temperature: float) -> Tensor:
            scaled = torch.log_softmax(logits / np.exp(log_temperature), dim=-1)
            return (scaled[torch.arange(len(chosen)), chosen] - recorded).abs()

        # From a quarter to four times
        found = minimize_scalar(
            lambda value: float(gaps(value).mean()),
            bounds=(-1.4, 1.4),
            method="bounded",
            options={"xatol": 1e-7},
        )
        is_right = float(gaps(found.x).max()) <= tolerance(self._batch)
        return float(np.exp(found.x)) if is_right else None

    def _fits(self, origin: TokenOrigin, replayed: NDArray[np.float64]) -> bool:
        _, sequence = self._tokens(origin)
        sampled = sampled_mask(sequence)
        gaps = np.abs(replayed - sequence.logprobs)[sampled]
        return bool(gaps.max(initial=0.0) <= tolerance(self._batch))

    def _tokens(self, origin: TokenOrigin) -> tuple[TokenIds, Rollout | Branch]:
        group = self._batch.bundle.groups[origin.group]
        rollout = group.rollouts[origin.rollout]
        sequence = rollout.sequences[origin.number]
        return rollout.sequence_prompt(sequence, group.prompt_token_ids), sequence
