"""Run files and sweep files."""

from __future__ import annotations

from pathlib import Path

import yaml

from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.config.sweep import load_sweep
from testkit.fuzz.mutation import change_yaml
from testkit.fuzz.target import Target, scratch_file

CONFIGS = Path(__file__).parents[3] / "configs"


def _is_mapping(content: bytes) -> bool:
    try:
        return isinstance(yaml.load(content, yaml.CSafeLoader), dict)
    except (yaml.YAMLError, ValueError, RecursionError, TypeError):
        return False


def _run_files() -> list[bytes]:
    return [file.read_bytes() for file in sorted(CONFIGS.rglob("*.yaml"))]


TARGETS = (
    Target(
        "run-file",
        _run_files,
        change_yaml,
        _is_mapping,
        lambda content: load_run_config(scratch_file("run.yaml", content)),
        (UserError,),
        ("config",),
    ),
    Target(
        "sweep-file",
        list,
        change_yaml,
        _is_mapping,
        lambda content: load_sweep(scratch_file("sweep.yaml", content)),
        (UserError,),
        ("config.sweep", "config.yaml_loader"),
    ),
)
