"""The resolved run file: what the processes of a started run really read. Hand-written files are YAML, this is JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rollcast.config.schema import RunConfig


def write_resolved(config: RunConfig, path: Path) -> None:
    """Write the configuration with secrets in clear, readable by the owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(reveal(config.model_dump()), indent=1, default=str) + "\n")
    temporary.replace(path)


def reveal(value: Any) -> Any:
    """Secrets as plain strings, so that a child process reads what this one was given."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [reveal(item) for item in value]
    return value
