"""Runs of the whole system that record every step: single answers, episodes, adapters, experts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from rollcast.local.demo.base_model import BaseModel, ensure_base_model
from testkit.forked_programs import ForkedPrograms
from testkit.system import misbehaving_world
from testkit.system.calling_model import make_calling_model
from testkit.system.harness import System
from testkit.tiny_model import make_architecture

Kind = Literal["answers", "episodes", "lora", "experts", "llama"]
KINDS: tuple[Kind, ...] = ("answers", "episodes", "lora", "experts")
VERIFIER = '''def odd(completion, reference):
    """1 if the answer has an odd number of digits: half of any model's answers do."""
    return float(sum(character.isdigit() for character in completion) % 2)
'''


def record_run(
    kind: Kind,
    folder: Path,
    *,
    steps: int,
    ranks: int = 1,
    weights: str = "versions",
    programs: ForkedPrograms | None = None,
    transport: str = "auto",
) -> System:
    """Run the system to the end of its budget; returns it with its files."""
    settings = make_settings(kind, folder)
    settings["weights"] = {"transport": transport, "store": {"anchor_every": 3}}
    settings["budget"] = {"steps": steps}
    settings["record"] = {"every_steps": 1, "weights": weights}
    with System(folder, settings, programs) as system:
        system.start_trainer(ranks=ranks)
        system.start_generator("g0")
        assert system.wait_end(300) == 0, system.log("trainer")[-3000:]
    return system


def make_settings(kind: Kind, folder: Path) -> dict[str, Any]:
    """8 prompts x 8 rollouts a step, no token older than 4 steps."""
    folder.mkdir(parents=True, exist_ok=True)
    settings: dict[str, Any] = {
        "run": kind,
        "model": {"dtype": "float32", "max_length": 96},
        "tasks": {
            "dataset": {"kind": "arithmetic", "max_digits": 2, "size": 800},
            "evaluation": {"num_prompts": 8, "rollouts_per_prompt": 1, "every_steps": 1_000},
        },
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": 4},
            "length_control": {"kind": "none"},
            "prompts_per_step": 8,
            "rollouts_per_prompt": 8,
            "max_prompt_tokens": 32,
            "max_completion_tokens": 64,
            "optimizer": {"learning_rate": 5e-5, "warmup_steps": 2},
        },
        "generator": {"slots": 64, "block_size": 32, "drain_seconds": 3},
        "trainer": {
            "tokens_per_micro_batch": 4096,
            "threads": 1,
            "checkpoint_every_steps": 1_000,
        },
    }
    match kind:
        case "answers" | "lora":
            small = BaseModel(max_digits=2, noise=0.25, steps=260)
            settings["model"]["path"] = str(ensure_base_model(small, lambda share: None))
            if kind == "lora":
                settings["model"]["lora"] = {"rank": 8, "alpha": 32}
                settings["recipe"]["optimizer"]["learning_rate"] = 5e-4
        case "episodes":
            _add_episodes(settings, folder)
        case "experts":
            _add_architecture(settings, folder, "qwen3_moe")
            settings["recipe"]["router_replay"] = True
        case "llama":
            _add_architecture(settings, folder, "llama")
    return settings


def _add_episodes(settings: dict[str, Any], folder: Path) -> None:
    """A tool that is called several times; the reward goes by the number of calls."""
    make_calling_model(folder / "model", max_length=256)
    settings["model"] |= {"path": str(folder / "model"), "max_length": 256}
    (folder / "rows.jsonl").write_text(
        "".join(json.dumps({"prompt": f"go {n}"}) + "\n" for n in range(400))
    )
    settings["tasks"] |= {
        "environments": [
            {
                "kind": "class",
                "name": "rough",
                "profile": "folder",
                "code": f"{misbehaving_world.__file__}:MisbehavingWorld",
            }
        ],
        "dataset": {
            "kind": "jsonl",
            "name": "rows",
            "path": str(folder / "rows.jsonl"),
            "environment": "rough",
        },
    }
    settings["recipe"] |= {"max_completion_tokens": 128, "episodes": {"max_turns": 6}}
    settings["recipe"]["rollouts_per_prompt"] = 4
    settings["generator"]["slots"] = 32


def _add_architecture(settings: dict[str, Any], folder: Path, architecture: str) -> None:
    """A model of random weights, and a verifier that half of any model's answers pass."""
    make_architecture(folder / "model", architecture, max_length=128)
    settings["model"] |= {"path": str(folder / "model"), "max_length": 128}
    (folder / "odd.py").write_text(VERIFIER)
    rows = [{"prompt": f"{n}+{n}=", "answer": str(2 * n)} for n in range(1, 400)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings["tasks"] |= {
        "verifiers": [
            {"kind": "function", "name": "odd", "code": f"{folder}/odd.py:odd", "trusted": True}
        ],
        "dataset": {
            "kind": "jsonl",
            "name": "rows",
            "path": str(folder / "rows.jsonl"),
            "verifier": "odd",
        },
    }
    settings["recipe"] |= {
        "exclude_truncated": False,
        "max_completion_tokens": 32,
    }
