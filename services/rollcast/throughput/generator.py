"""Tokens per second of one generator with its slots taken.

An engine step decodes one token of every running rollout. It reads the weights once and each
rollout's KV cache, or is bound by its products if that takes longer than reading the weights:

    step = max(weights / bandwidth, products / peak) + KV cache / bandwidth + the engine's own time
"""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from rollcast.memory.plan import MemoryPlan
from rollcast.throughput.assumptions import Assumptions
from rollcast.throughput.card import Card
from rollcast.throughput.lengths import CutLengths
from rollcast.throughput.model_work import active_weights, attention_flops


@dataclass(frozen=True)
class GeneratorRate:
    plan: MemoryPlan
    card: Card
    lengths: CutLengths
    prompt_tokens: float
    assumptions: Assumptions

    @property
    def running_tokens(self) -> int:
        """Mean tokens of a running rollout, with its prompt."""
        return math.ceil(self.prompt_tokens + self.lengths.mean_position)

    @cached_property
    def active_weights(self) -> int:
        return active_weights(self.plan.model)

    @cached_property
    def kv_of_running(self) -> int:
        """Bytes of KV cache of a running rollout, on one worker."""
        return self.plan.worker.kv_of_slot(self.running_tokens)

    @property
    def claimed(self) -> float:
        """Mean number of slots with a rollout.

        A prompt is claimed when all its rollouts have a slot, so up to one less than these are
        free.
        """
        worker = self.plan.worker
        return max(1.0, worker.slots - (self.plan.config.recipe.rollouts_per_prompt - 1) / 2)

    @property
    def most_running(self) -> float:
        """Rollouts that are decoded with every slot taken: those whose KV cache fits. vLLM preempts
        the others.
        """
        return min(self.plan.worker.slots, max(1.0, self.plan.worker.kv_bytes / self.kv_of_running))

    @cached_property
    def running(self) -> float:
        """Mean number of rollouts that are decoded."""
        return min(self.claimed, self.most_running)

    @property
    def kv_share(self) -> float:
        """Share of the KV cache that the claimed rollouts fill on average.

        More than 1 = some are always preempted.
        """
        return self.claimed * self.kv_of_running / max(1, self.plan.worker.kv_bytes)

    @property
    def preemption_share(self) -> float:
        """Share of the time in which the claimed rollouts do not fit. Normal distribution; the
        rollouts of one prompt begin together, so they count as one."""
        per_token = self.kv_of_running / self.running_tokens
        spread = per_token * math.sqrt(self.lengths.variance_of_running)
        spread *= math.sqrt(self.claimed * self.plan.config.recipe.rollouts_per_prompt)
        free = self.plan.worker.kv_bytes - self.claimed * self.kv_of_running
        return 1.0 - NormalDist().cdf(free / spread)

    @property
    def rebuild_seconds(self) -> float:
        """Computing the KV cache of one preempted rollout again; the generator decodes nothing in
        that time.
        """
        tokens = self.running_tokens
        model = self.plan.model
        flops = tokens * (2 * self.active_weights + attention_flops(model, tokens / 2))
        return flops / self._product_rate

    def gpu_seconds(self, running: float) -> float:
        """Work of each GPU in one engine step with this number of rollouts."""
        model = self.plan.model
        bytes_per_second = self.card.bandwidth * self.assumptions.bandwidth_share
        products = running * 2 * self.active_weights / self._product_rate
        weights = max(self.plan.worker.weights / bytes_per_second, products)
        # After attention and after the feed-forward
        reduces = 2 * len(model.layers) if self.plan.worker.workers > 1 else 0
        return (
            weights
            + running * self.kv_of_running / bytes_per_second
            + reduces * self.assumptions.all_reduce_seconds
        )

    def step_seconds(self, running: float) -> float:
        """One engine step with this number of rollouts."""
        overhead_seconds = (
            self.assumptions.engine_step_seconds + running * self.assumptions.engine_rollout_seconds
        )
        return self.gpu_seconds(running) + overhead_seconds

    def tokens_per_second_with(self, running: float) -> float:
        """Completion tokens, the time for prompts taken off."""
        prompt = self.prompt_tokens * 2 * self.active_weights / self._product_rate
        per_token = self.step_seconds(running) / running
        return 1.0 / (per_token + prompt / self.lengths.mean)

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_second_with(self.running)

    @property
    def gpu_share(self) -> float:
        """Share of the time in which the generator's GPUs work while all its slots are taken."""
        return self.gpu_seconds(self.running) / self.step_seconds(self.running)

    @cached_property
    def longest_seconds(self) -> float:
        """Mean time of the longest rollout of a prompt, with every slot taken."""
        longest = self.lengths.mean_of_longest(self.plan.config.recipe.rollouts_per_prompt)
        return longest * self.running / self.tokens_per_second

    @property
    def _product_rate(self) -> float:
        """Operations per second of all workers."""
        return self.plan.worker.workers * self.card.flops * self.assumptions.product_share
