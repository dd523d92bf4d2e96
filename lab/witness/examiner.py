"""The held-out prompts of a run, answered by any weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from lab.witness.extrapolation import Array, Weights
from rollcast.config.run import load_run_config
from rollcast.tasks.grading import grade
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import load

PASS_RATE_REPEATS = 2
"""Times that the held-out prompts are answered for a pass rate: twice as often as in one evaluation
of the run."""


class Examiner:
    """Answers a run's held-out prompts with any weights, in plain Transformers."""

    def __init__(self, config: Path) -> None:
        settings = load_run_config(config)
        self._prompts: list[Prompt] = load(settings.tasks).held_out
        self._rollouts = settings.tasks.evaluation.rollouts_per_prompt
        self._max_tokens = settings.recipe.max_completion_tokens
        self._model: Any = AutoModelForCausalLM.from_pretrained(settings.model.path).eval()
        self._tokenizer = AutoTokenizer.from_pretrained(settings.model.path)
        self._tokenizer.padding_side = "left"
        texts = [prompt.text for prompt in self._prompts for _ in range(self._rollouts)]
        self._inputs = self._tokenizer(texts, padding=True, return_tensors="pt")
        self.base: Weights = {
            name: weight.detach().numpy().copy() for name, weight in self._model.named_parameters()
        }
        """The weights that the run began with."""
        self._references = [
            prompt.reference for prompt in self._prompts for _ in range(self._rollouts)
        ]

    def rewards(self, weights: Weights, repeats: int) -> Array:
        """(prompts, repeats x rollouts), sampled as in an evaluation of the run: temperature 1,
        nothing cut off.
        """
        return np.concatenate([self._answered(weights, seed) for seed in range(repeats)], axis=1)

    def pass_rate(self, weights: Weights) -> float:
        return float(self.rewards(weights, PASS_RATE_REPEATS).mean())

    def _answered(self, weights: Weights, seed: int) -> Array:
        with torch.no_grad():
            for name, weight in self._model.named_parameters():
                weight.copy_(torch.from_numpy(weights[name]))
            torch.manual_seed(seed)
            sampled = self._model.generate(
                **self._inputs,
                max_new_tokens=self._max_tokens,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
            )
        prompt_length = self._inputs["input_ids"].shape[1]
        answers = sampled[:, prompt_length:]
        ended = (answers == self._tokenizer.eos_token_id).any(dim=1).tolist()
        texts = self._tokenizer.batch_decode(answers, skip_special_tokens=True)
        rewards = [
            grade("arithmetic", text, reference).reward if has_ended else 0.0
            for text, reference, has_ended in zip(texts, self._references, ended, strict=True)
        ]
        return np.array(rewards).reshape(len(self._prompts), self._rollouts)
