"""Task folders in Harbor's published format."""

from __future__ import annotations

import shutil
from pathlib import Path

from testkit.containers import IMAGE

TASK_FOLDER = Path(__file__).with_name("harbor_task")
"""A task's folder. Its files name MODE, the place of the tests, and IMAGE, the base image."""
TASK_FILE = (TASK_FOLDER / "task.toml").read_text()
TESTS = (TASK_FOLDER / "tests" / "test.sh").read_text()
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "environment.gpus": ("gpus = 0", "gpus = 1"),
    "environment.gpu_types": ("gpus = 0", 'gpu_types = ["H100"]'),
    "environment.tpu": ("gpus = 0", 'tpu = {type = "v6e", topology = "2x2"}'),
    "environment.os": ("gpus = 0", 'os = "windows"'),
    "environment.mcp_servers": ("gpus = 0", '[[environment.mcp_servers]]\nname = "files"'),
    "environment.skills_dir": ("gpus = 0", 'skills_dir = "/skills"'),
    "environment.network_mode": ("gpus = 0", 'network_mode = "allowlist"'),
    "verifier.environment": ("[agent]", "[verifier.environment]\ncpus = 1\n\n[agent]"),
    "verifier.collect": ("[agent]", '[[verifier.collect]]\ncommand = "true"\n\n[agent]'),
    "steps": ("[task]", '[[steps]]\nname = "one"\n\n[task]'),
    "multi_step_reward_strategy": ("artifacts", 'multi_step_reward_strategy = "mean"\nartifacts'),
    "agent.network_mode": ("[environment]", 'network_mode = "public"\n\n[environment]'),
}
"""Field -> text of TASK_FILE, and the text that replaces it."""


def write_task(folder: Path, task_file: str = TASK_FILE, mode: str = "shared") -> Path:
    """Write one task; returns its folder."""
    shutil.copytree(TASK_FOLDER, folder, dirs_exist_ok=True)
    (folder / "task.toml").write_text(task_file.replace("MODE", mode))
    dockerfile = folder / "environment" / "Dockerfile"
    dockerfile.write_text(dockerfile.read_text().replace("IMAGE", IMAGE))
    return folder
