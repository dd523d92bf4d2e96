"""Host memory of each trainer rank at start, and what a checkpoint costs the step that begins it: results/start.json.

    python -m benchmarks.start [--ranks 1 2 4]

A Qwen3 of 300 M parameters with random weights, stored in bfloat16, float32 masters, ranks over gloo. Memory is the
highest resident set (VmHWM, file pages included) above what stood after the imports; `whole` is one process that reads
the model with `from_pretrained` in float32, as every rank once did.
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
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.start.rank import STEPS
from testkit.record import write_result
from testkit.tiny_model import write_tokenizer

SECONDS = 1_200.0
CONFIG = Qwen3Config(
    vocab_size=64_000,
    hidden_size=1024,
    intermediate_size=3072,
    num_hidden_layers=18,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=64,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)


def write_model(folder: Path) -> int:
    """Returns the number of parameters."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16)
    model.save_pretrained(folder)
    write_tokenizer(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def run_ranks(what: str, model: Path, folder: Path, world_size: int) -> list[dict[str, Any]]:
    """Run `benchmarks.start.rank` as each of the ranks; returns what each measured."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        **os.environ,
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    folder.mkdir()
    command = [sys.executable, "-m", "benchmarks.start.rank", what, str(model), str(folder)]
    ranks = [subprocess.Popen(command, env={**common, "RANK": str(rank)}) for rank in range(world_size)]
    try:
        codes = [rank.wait(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    if any(codes):
        raise RuntimeError(f"ranks ended with {codes}")
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(world_size)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures: dict[str, Any] = {"parameters": write_model(folder / "model"), "steps": STEPS}
        figures["whole"] = run_ranks("whole", folder / "model", folder / "whole", 1)
        for world_size in arguments.ranks:
            figures[f"{world_size} ranks"] = run_ranks("shard", folder / "model", folder / str(world_size), world_size)
            print(json.dumps(figures[f"{world_size} ranks"], indent=1))
        figures["checkpoint"] = run_ranks("checkpoint", folder / "model", folder / "checkpoint", 1)
    print(write_result("start", figures).read_text())


if __name__ == "__main__":
    main()
