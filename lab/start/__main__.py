"""Host memory of each trainer rank at start, and the cost of a checkpoint for its step:
lab/results/start.json.

    python -m lab.start [start] [checkpoint] [--ranks 1 2 4]

Models with random weights, stored in bfloat16, float32 masters, ranks over gloo.

start: a Qwen3 and a Qwen3 MoE of 300 M parameters. Memory is the highest resident set (VmHWM, file
pages included) above that after the imports, while the model is read; `whole` is one process that
reads it with `from_pretrained` in float32. Target: a rank's shard and half a gigabyte.

checkpoint: a Qwen3 of 100 M parameters, steps of 1,024 tokens a rank, 1 and 2 ranks. A saving step
is the copy and the step during which the checkpoint is written; it is compared with the mean of the
step before it and of the one after the writing. Target: at most 1.2 times as long, the first as
well.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from testkit.record import LAB_RESULTS, write_result
from testkit.tiny_model import write_tokenizer

SECONDS = 1_200.0
HALF_A_GIGABYTE = 500.0
"""MB."""
LONGEST_RATIO = 1.2
SHARED: dict[str, Any] = {
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
DENSE = Qwen3Config(
    vocab_size=64_000,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=18,
    num_attention_heads=16,
    num_key_value_heads=8,
    **SHARED,
)
EXPERTS = Qwen3MoeConfig(
    vocab_size=64_000,
    hidden_size=1024,
    intermediate_size=3072,
    moe_intermediate_size=768,
    num_experts=16,
    num_experts_per_tok=2,
    num_hidden_layers=6,
    num_attention_heads=16,
    num_key_value_heads=8,
    **SHARED,
)
SAVED = Qwen3Config(
    vocab_size=32_000,
    hidden_size=768,
    intermediate_size=2304,
    num_hidden_layers=10,
    num_attention_heads=12,
    num_key_value_heads=6,
    **SHARED,
)


def write_model(config: Any, folder: Path) -> int:
    """Returns the number of parameters."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def run_ranks(what: str, model: Path, folder: Path, world_size: int) -> list[dict[str, Any]]:
    """Run `lab.start.rank` as each of the ranks; returns what each measured."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    folder.mkdir()
    command = [sys.executable, "-m", "lab.start.rank", what, str(model), str(folder)]
    ranks = [
        subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(world_size)
    ]
    try:
        codes = [rank.wait(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world_size)]


def measure_start(config: Any, ranks: list[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, Any] = {"parameters": write_model(config, folder / "model")}
        figures["whole"] = run_ranks("whole", folder / "model", folder / "whole", 1)
        for world_size in ranks:
            figures[f"{world_size} ranks"] = run_ranks(
                "shard", folder / "model", folder / str(world_size), world_size
            )
    over = [
        rank["peak_over_shard_mb"]
        for world_size in ranks
        for rank in figures[f"{world_size} ranks"]
    ]
    return {
        **figures,
        "largest_over_shard_mb": max(over),
        "targets": {"at most 500 MB beyond the shard": max(over) <= HALF_A_GIGABYTE},
    }


def measure_checkpoint(ranks: list[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, Any] = {
            "parameters": write_model(SAVED, folder / "model"),
            "load_before": os.getloadavg(),
        }
        for world_size in ranks:
            first, *_ = run_ranks(
                "checkpoint", folder / "model", folder / str(world_size), world_size
            )
            figures[f"{world_size} ranks"] = first
    ratios = [ratio for world_size in ranks for ratio in figures[f"{world_size} ranks"]["ratios"]]
    return {
        **figures,
        "load_after": os.getloadavg(),
        "largest_ratio": max(ratios),
        "targets": {
            f"a saving step at most {LONGEST_RATIO} times as long": max(ratios) <= LONGEST_RATIO
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "parts",
        metavar="PART",
        nargs="*",
        help="start, checkpoint; default both; the other's stays",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4], help="of start")
    arguments = parser.parse_args()
    path, parts = LAB_RESULTS / "start.json", arguments.parts or ["start", "checkpoint"]
    figures = json.loads(path.read_text())["figures"] if path.exists() else {}
    if "start" in parts:
        figures["dense"], figures["experts"] = (
            measure_start(config, arguments.ranks) for config in (DENSE, EXPERTS)
        )
    if "checkpoint" in parts:
        figures["checkpoint"] = measure_checkpoint([1, 2])
    print(write_result("start", figures, LAB_RESULTS).read_text())


if __name__ == "__main__":
    main()
