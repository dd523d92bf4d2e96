"""A run of TRL's GRPOTrainer on the demo's task: `python trl_run.py TASK.json WARM_UP_STEPS` prints
its seconds a step.

Runs in TRL's environment, which has nothing of Rollcast. A step is what TRL counts as one: sample,
grade, update. TASK.json has the run file's settings, and the prompts with their answers.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


class StepTimes(TrainerCallback):  # type: ignore[misc]  # TRL's environment is not checked
    """Wall seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.seconds.append(time.monotonic() - self._began)


def reward(completions: list[str], answer: list[int], **_: Any) -> list[float]:
    """1 if the text after the last `|` is the sum."""
    pairs = (
        (text.rpartition("|"), str(right)) for text, right in zip(completions, answer, strict=True)
    )
    return [float(bool(marker) and found == right) for (_, marker, found), right in pairs]


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text())
    settings = task["settings"]
    recipe = settings["recipe"]
    model = settings["model"]["path"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.padding_side = "left"
    times = StepTimes()
    arguments = GRPOConfig(
        output_dir="trl",
        per_device_train_batch_size=recipe["prompts_per_step"] * recipe["rollouts_per_prompt"],
        num_generations=recipe["rollouts_per_prompt"],
        gradient_accumulation_steps=1,
        max_completion_length=recipe["max_completion_tokens"],
        learning_rate=recipe["optimizer"]["learning_rate"],
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=recipe["optimizer"]["warmup_steps"],
        max_steps=settings["budget"]["steps"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        beta=0.0,
        bf16=False,
        use_cpu=True,
        weight_decay=0.01,
        adam_beta2=0.95,
        save_strategy="no",
        logging_steps=1_000,
        report_to=[],
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
        args=arguments,
        train_dataset=Dataset.from_list(task["rows"]),
        reward_funcs=reward,
        processing_class=tokenizer,
        callbacks=[times],
    )
    trainer.train()
    counted = times.seconds[int(sys.argv[2]) :]
    print(sum(counted) / len(counted))


if __name__ == "__main__":
    main()
