"""Models on disk, stored in another way or with another config."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers


def change_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def store(source: Path, target: Path, *, dtype: torch.dtype = torch.float32, **how: Any) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.safetensors"))
    transformers.AutoModelForCausalLM.from_pretrained(source, dtype=dtype).save_pretrained(
        target, **how
    )
