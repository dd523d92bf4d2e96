"""A mistake that ends the agent: is it punished?

    python -m benchmarks.mistakes [--seeds 0 1 2] [--steps 40]

A tiny model takes one action for each task. With a probability of a fourth it calls a tool that is
not there, after which the agent ends with exit code 1, as openai-agents does; its answers have a
reward of 1 or 0.5 by chance. Each seed runs `rollcast up` twice: with `model_exit_codes: [1]`, and
as reference without. The model is the same for all seeds. Writes results/mistakes.json: steps, the
probabilities of the call and of the answer by the weights before and after, computed by plain
Transformers, and the share of the call among the first and the last actions. Exit status 1 if a
target is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks.clients.scripted_model import write_scripted_model
from testkit.record import write_result

AGENT = Path(__file__).with_name("agent.py")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
"""The only tool that the agent has."""
NUM_ACTIONS = 200
"""Actions at either end of a run over which a share is taken: a standard error of 0.03 at a
fourth."""
ROWS = [{"prompt": f"task {number}"} for number in range(64)]
MAX_LENGTH = 1_024
CALL_SHARE = 0.25
ANSWER = "Five."
LIMIT_SECONDS = 1_500.0
MAX_SHARE_WITH = 0.05
MIN_ANSWER_SHARE_WITH = 0.9
MAX_FALL_WITHOUT = 0.1
"""Largest fall, as a part of the share at the beginning."""


def run_once(folder: Path, seed: int, codes: list[int], num_steps: int) -> dict[str, Any]:
    """One run, as a user starts it."""
    write_scripted_model(folder / "model", "browse", {}, ANSWER, MAX_LENGTH, CALL_SHARE)
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (folder / "run.yaml").write_text(yaml.safe_dump(settings_of(seed, codes, num_steps)))
    log = folder / "actions"
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "rollcast.cli.main", "up", "--config", "run.yaml"],
        cwd=folder,
        env=os.environ | {"MISTAKES_LOG": str(log)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    if ended.returncode != 0:
        raise SystemExit(
            f"seed {seed}: exit status {ended.returncode}: "
            f"{ended.stdout[-800:]}{ended.stderr[-800:]}"
        )
    before, after = (
        action_probabilities(folder / name) for name in ("model", "runs/mistakes/model")
    )
    steps = (folder / "runs" / "mistakes" / "steps.jsonl").read_text().splitlines()
    actions = [int(line.split()[1]) for line in sorted(log.read_text().splitlines())]
    return {
        "seed": seed,
        "model_exit_codes": codes,
        "seconds": round(time.monotonic() - started, 1),
        "steps": len(steps),
        "call_probability_before": round(before[0], 4),
        "call_probability_after": round(after[0], 4),
        "answer_probability_after": round(after[1], 4),
        "num_actions": len(actions),
        "first_share": round(sum(actions[:NUM_ACTIONS]) / NUM_ACTIONS, 4),
        "last_share": round(sum(actions[-NUM_ACTIONS:]) / NUM_ACTIONS, 4),
        "warnings": [
            line for line in ended.stdout.splitlines() if "after an answered turn" in line
        ][-1:],
    }


def action_probabilities(model_folder: Path) -> tuple[float, float]:
    """Mean probabilities over the rows that the model calls the tool, and that it answers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_folder).float().eval()
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    actions = tokenizer.convert_tokens_to_ids(["<tool_call>", ANSWER])
    sums = [0.0, 0.0]
    for row in ROWS:
        token_ids = tokenizer.apply_chat_template(
            [{"role": "user", "content": row["prompt"]}],
            tools=[TOOL],
            add_generation_prompt=True,
            return_tensors="pt",
            return_dict=False,
        )
        with torch.no_grad():
            logits = model(token_ids).logits[0, -1]
        for index, probability in enumerate(logits.softmax(-1)[actions].tolist()):
            sums[index] += probability
    return sums[0] / len(ROWS), sums[1] / len(ROWS)


def settings_of(seed: int, codes: list[int], num_steps: int) -> dict[str, Any]:
    environment = {
        "kind": "harness",
        "name": "agent",
        "command": [sys.executable, "-S", str(AGENT)],
        "model_exit_codes": codes,
    }
    return {
        "run": "mistakes",
        "seed": seed,
        "model": {"path": "model", "dtype": "float32", "max_length": MAX_LENGTH},
        "tasks": {
            "environments": [environment],
            "dataset": {
                "kind": "jsonl",
                "name": "tasks",
                "path": "rows.jsonl",
                "environment": "agent",
            },
            "evaluation": {"num_prompts": 4, "rollouts_per_prompt": 1, "every_steps": num_steps},
        },
        "recipe": {
            "prompts_per_step": 4,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 64,
            "max_completion_tokens": 512,
            "length_control": {"kind": "none"},
            # Rewards by chance for one and the same answer have no gradient but rounding, which
            # AdamW with an epsilon of 1e-15 makes a whole step of.
            "optimizer": {"learning_rate": 1e-3, "warmup_steps": 1, "epsilon": 1e-4},
        },
        "generator": {"slots": 16, "block_size": 32, "cpu_kv_cache_gib": 1},
        "trainer": {"threads": 1},
        "budget": {"steps": num_steps},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    rows = []
    for seed in arguments.seeds:
        for codes in ([1], []):
            with tempfile.TemporaryDirectory(prefix="mistakes-") as folder:
                rows.append(run_once(Path(folder), seed, codes, arguments.steps))
            print(json.dumps(rows[-1]), flush=True)
    punished = [row for row in rows if row["model_exit_codes"]]
    left_out = [row for row in rows if not row["model_exit_codes"]]
    targets = {
        "with model_exit_codes the call's probability ends below 0.05, the answer's above 0.9": all(
            row["call_probability_after"] < MAX_SHARE_WITH
            and row["answer_probability_after"] > MIN_ANSWER_SHARE_WITH
            for row in punished
        ),
        "without the call's falls by less than a tenth": all(
            row["call_probability_after"] > (1 - MAX_FALL_WITHOUT) * row["call_probability_before"]
            for row in left_out
        ),
        "all make the same number of steps": len({row["steps"] for row in rows}) == 1,
    }
    write_result("mistakes", {"targets": targets, "rows": rows})
    return 0 if all(targets.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
