"""The generators' part: every token's log-prob under the version that its label names, and what
explains one that is another: a label, a temperature, or other weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from rollcast.recorded.array_file import Arrays
from rollcast.trainer.replay.cached_model import CachedModel, read_plain_model
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.recorded_batch import RecordedBatch, SequenceKey
from rollcast.trainer.replay.sampled_tokens import (
    SequenceVersions,
    recorded_versions,
    sampled_mask,
)
from rollcast.trainer.replay.token_gaps import TokenGaps, tolerance
from rollcast.wire.version import PolicyVersion

LOGPROBS = "log-probs of its versions"


def check_labels(batch: RecordedBatch, report: ReplayReport) -> None:
    """Compare labels of versions and temperatures with the step's, without any weights."""
    recipe = batch.config.recipe
    newest = batch.bundle.version.step
    oldest = newest - recipe.schedule.max_staleness
    num_sequences = 0
    wrong_labels = []
    for key, sequence in batch.compared_sequences():
        num_sequences += 1
        for position, version in enumerate(recorded_versions(sequence)):
            if version is None or not oldest <= version.step <= newest:
                wrong_labels.append((key, position))
                break  # the first token is enough to show it
    reason = f"a token has no version, or one outside {max(0, oldest)} to {newest}"
    location = batch.locate(*wrong_labels[0]) if wrong_labels else None
    report.add("generator", "version labels", num_sequences, len(wrong_labels), reason, location)
    reasons = [
        f"group {group.sequence} has {group.sampling.temperature:g}, the recipe "
        f"{recipe.temperature:g}"
        for index, group in batch.groups
        if {group.sampling.temperature, batch.bundle.tasks[index].sampling.temperature}
        != {recipe.temperature}
    ]
    num_groups = len(batch.groups)
    reason = "".join(reasons[:1])
    report.add("generator", "temperature asked for", num_groups, len(reasons), reason)


def check_sampling(batch: RecordedBatch, report: ReplayReport, damaged: set[str]) -> None:
    """Replay the sampled tokens of every sequence whose versions were kept.

    `damaged`: versions whose weights are.
    """
    bundle = batch.bundle
    usable = [version for version in bundle.kept_versions if str(version) not in damaged]

    # A generator's rollouts have few versions, and a replay of all of them comes back to each.
    @lru_cache(maxsize=4)
    def load_weights(version: PolicyVersion) -> Arrays:
        return bundle.load_weights(version)[0]

    config = batch.config
    plain_model = read_plain_model(config.model, router_replay=config.recipe.router_replay)
    sampler = _ReplayedSampler(batch, CachedModel(*plain_model, load_weights), usable)
    gaps = TokenGaps(batch)
    num_skipped = 0
    for key, sequence in batch.compared_sequences():
        versions = recorded_versions(sequence)
        if not {*versions, *(mark.version for mark in sequence.kv_marks)} <= set(usable):
            num_skipped += 1
            continue
        # Forced tokens were not sampled, so their log-probs say nothing of the generator.
        positions = np.flatnonzero(sampled_mask(sequence))
        replayed = sampler.logprobs(key, versions)[positions]
        gaps.add(key, positions, sequence.logprobs[positions], replayed, "generator_replayed")
    gaps.report(report, "generator", LOGPROBS, sampler.explain(gaps) if gaps.different else "")
    if num_skipped:
        reason = f"{num_skipped} sequences: weights of their versions were not kept whole"
        report.not_checked("generator", LOGPROBS, reason)


@dataclass(frozen=True, slots=True)
class _ReplayedSampler:
    """Samples the recorded tokens of a batch again."""

    batch: RecordedBatch
    model: CachedModel
    usable_versions: list[PolicyVersion]

    def logprobs(self, key: SequenceKey, versions: SequenceVersions) -> NDArray[np.float64]:
        """[L], 0 where nothing was sampled."""
        temperature = self._temperature(key)
        prompt, sequence = self.batch.prompt_and_sequence(key)
        logprobs = np.zeros(len(sequence.token_ids))
        for start, end, logits in self.model.sampled_segments(prompt, sequence, versions):
            chosen = torch.from_numpy(sequence.token_ids[start:end].astype(np.int64))
            rows = torch.log_softmax(logits.double() / temperature, dim=-1)
            logprobs[start:end] = rows[torch.arange(end - start), chosen].numpy()
        return logprobs

    def explain(self, gaps: TokenGaps) -> str:
        """A cause of the recorded log-probs of the worst sequence, in words."""
        assert gaps.worst is not None
        key = gaps.worst.key
        versions = recorded_versions(self.batch.prompt_and_sequence(key)[1])
        if label := self._find_label(key, versions, int(gaps.different[key][0])):
            return label
        fitted = self._fit_temperature(key, versions)
        if fitted is not None:
            return f"temperature: sampled with {fitted:.3g}, not with {self._temperature(key):g}"
        return "weights: no kept version and no temperature explains them"

    def _temperature(self, key: SequenceKey) -> float:
        return self.batch.bundle.groups[key.group].sampling.temperature

    def _find_label(
        self, key: SequenceKey, versions: SequenceVersions, first_wrong: int
    ) -> str | None:
        """Another version for the span with the first wrong token that makes all of them right."""
        _, sequence = self.batch.prompt_and_sequence(key)
        is_sampled = sampled_mask(sequence)
        span = next(item for item in sequence.version_spans if item.start <= first_wrong < item.end)
        for version in self.usable_versions:
            if version == span.version:
                continue
            relabelled = versions.copy()
            relabelled[span.start : span.end] = [version] * (span.end - span.start)
            gaps = np.abs(self.logprobs(key, relabelled) - sequence.logprobs)[is_sampled]
            if gaps.max(initial=0.0) <= tolerance(self.batch):
                return f"version label: says {span.version}, sampled with {version}"
        return None

    def _fit_temperature(self, key: SequenceKey, versions: SequenceVersions) -> float | None:
        """The temperature with which the recorded log-probs are right; None = no temperature
        makes them right.
        """
        prompt, sequence = self.batch.prompt_and_sequence(key)
        rows: list[Tensor] = []
        positions: list[int] = []
        # Enough tokens to know one number; the logits of each are as many as the vocabulary.
        for start, end, logits in self.model.sampled_segments(prompt, sequence, versions):
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
        fit = minimize_scalar(
            lambda value: float(gaps(value).mean()),
            bounds=(-1.4, 1.4),
            method="bounded",
            options={"xatol": 1e-7},
        )
        is_right = float(gaps(fit.x).max()) <= tolerance(self.batch)
        return float(np.exp(fit.x)) if is_right else None
