"""A real engine sets its own number of threads: one for each worker, even if torch was imported too
early.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from testkit.tiny_model import make_tiny_model

PROGRAM = """
import asyncio, json, sys
import torch
from rollcast.config.run import load_run_config
from rollcast.generator.vllm import engine_start
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_process import EngineFork
from pathlib import Path

async def threads(config, fork):
    engine = await Engine.start(config, "threads", fork, own_weights=True)
    engine.shutdown()
    return engine.num_threads

config = load_run_config(Path(sys.argv[1]))
imported_with = torch.get_num_threads()
engine_start.set_environment(config.generator)
with EngineFork() as fork:
    print(json.dumps([imported_with, asyncio.run(threads(config, fork))]))
"""


CORES = len(os.sched_getaffinity(0))


@pytest.mark.engine
@pytest.mark.skipif(CORES == 1, reason="on one core torch takes one thread, whatever it is told")
@pytest.mark.timeout(600)
def test_an_engine_sets_its_number_of_threads_itself(tmp_path: Path) -> None:
    make_tiny_model(tmp_path / "model")
    run_file = tmp_path / "run.yaml"
    settings = {
        "run": "threads",
        "folder": str(tmp_path / "runs"),
        "model": {"path": str(tmp_path / "model"), "dtype": "float32", "max_length": 512},
        "recipe": {
            "length_control": {"kind": "none"},
            "max_prompt_tokens": 128,
            "max_completion_tokens": 384,
        },
        "generator": {"slots": 32, "block_size": 32},
    }
    run_file.write_text(json.dumps(settings))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(run_file)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": str(CORES), "PYTHONPATH": ":".join(sys.path)},
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    imported_with, engine = json.loads(ended.stdout.splitlines()[-1])
    assert imported_with == CORES, "the program did import torch too early"
    assert engine == 1
