"""The resolved run file: what the processes of a started run really read. Hand-written files are YAML, this is JSON."""

import json
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rollcast.config.base import Settings
from rollcast.config.schema import RunConfig

USUAL_PORTS = (("forecaster", "http_port"), ("local", "prometheus_port"))
"""Settings that stay left out if the run file leaves them out: a resumed run finds a free port if another run has them."""


def write_resolved(config: RunConfig, path: Path) -> None:
    """Write the configuration with secrets in clear, readable by the owner only."""
    settings = plain(config)
    for group, name in USUAL_PORTS:
        if name not in getattr(config, group).model_fields_set:
            del settings[group][name]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.touch(mode=0o600)
    temporary.write_text(json.dumps(settings, indent=1) + "\n")
    temporary.replace(path)


def plain(settings: Settings) -> dict[str, Any]:
    """The settings as a file contains them: lists for tuples, text for paths, secrets in clear."""
    return dict(json.loads(json.dumps(reveal(settings.model_dump()), default=str)))


def reveal(value: Any) -> Any:
    """Secrets as plain strings, so that a child process reads what this one was given."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {key: reveal(item) for key, item in value.items()}
    return [reveal(item) for item in value] if isinstance(value, (list, tuple)) else value
