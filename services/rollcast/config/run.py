"""Reading a run file: its schema (`schema`) and the rules across settings (`rules`), every mistake told at once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from rollcast.config.errors import UserError
from rollcast.config.rules import broken_rules
from rollcast.config.schema import RunConfig
from rollcast.config.sentences import Wrong, described, without
from rollcast.config.yaml_loader import load_yaml

MAX_FILE_BYTES = 1 << 20
__all__ = ["RunConfig", "load_run_config", "parse_run_config"]

MOST_MENDS = 4
"""A mistake may hide others below it, which show once it is out of the way."""


def load_run_config(path: Path) -> RunConfig:
    """Read a run file (YAML or JSON).

    Raises UserError: one sentence for each wrong field, with its value and what is allowed.
    """
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UserError(f"run file {path}: larger than {MAX_FILE_BYTES} bytes; it should hold settings only")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"run file {path}: cannot be read ({error.strerror}); give the path of a YAML file") from error
    except UnicodeDecodeError as error:
        raise UserError(f"run file {path}: byte {error.start} is not UTF-8; save it as UTF-8 text") from error
    data = load_yaml(text, f"run file {path}")
    if not isinstance(data, dict):
        raise UserError(f"run file {path}: holds {type(data).__name__}, needs a mapping such as `run: demo`")
    return parse_run_config(data, source=str(path))


def parse_run_config(data: dict[str, Any], *, source: str) -> RunConfig:
    """Check settings that were already read; secrets in the environment win over the file's.

    Raises UserError: one sentence for each mistake, all of them at once.
    """
    config, mistakes = _checked(data)
    if mistakes:
        raise UserError("\n".join(f"{source}: {mistake.sentence}" for mistake in mistakes))
    assert config is not None
    updates: dict[str, Any] = {}
    if password := os.environ.get("ROLLCAST_REDIS_PASSWORD"):
        updates["redis"] = config.redis.model_copy(update={"password": SecretStr(password)})
    if token := os.environ.get("ROLLCAST_RPC_TOKEN"):
        updates["rpc"] = config.rpc.model_copy(update={"token": SecretStr(token)})
    if token := os.environ.get("ROLLCAST_GRADER_TOKEN"):
        updates["grader"] = config.grader.model_copy(update={"token": SecretStr(token)})
    if token := os.environ.get("ROLLCAST_HTTP_TOKEN"):
        updates["http"] = config.http.model_copy(update={"token": SecretStr(token)})
    return config.model_copy(update=updates)


def _checked(data: dict[str, Any]) -> tuple[RunConfig | None, list[Wrong]]:
    """The settings, and every mistake in them. Rules are asked with the default where a setting is wrong by itself."""
    mistakes: list[Wrong] = []
    mended = data
    for _ in range(MOST_MENDS):
        try:
            config = RunConfig.model_validate(mended)
        except ValidationError as error:
            found = error.errors(include_url=False)
            for wrong in (described(item, mended, RunConfig) for item in found):
                if not any(wrong.touches(earlier.field) for earlier in mistakes):
                    mistakes.append(wrong)
            mended = without(mended, found)
            continue
        broken = [wrong for wrong in broken_rules(config) if not any(wrong.touches(m.field) for m in mistakes)]
        return config, mistakes + broken
    return None, mistakes
