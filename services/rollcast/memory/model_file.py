"""A model's config.json: in its folder, in the hub's cache on this machine, or on the hub."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError, refused_by_the_world

CONFIG = "config.json"
HUB = "https://huggingface.co"
MAX_BYTES = 1 << 20
HUB_SECONDS = 10.0


def read_here(model: str) -> dict[str, Any] | None:
    """What this machine has of `model`, a folder or a name on the hub; None where it has nothing. Raises UserError."""
    folder = folder_here(model)
    return None if folder is None else read_file(folder / CONFIG, f"model.path = {model}")


def folder_here(model: str) -> Path | None:
    """Where this machine has the files of `model`, a folder or a name on the hub; None if it has no config.json."""
    for file in (Path(model) / CONFIG, _in_cache(model)):
        if file is not None and file.is_file():
            return file.parent
    return None


def read_file(file: Path, field: str) -> dict[str, Any]:
    """`field`: whom a sentence blames. Raises UserError."""
    try:
        with file.open("rb") as stream:
            return _parsed(stream.read(MAX_BYTES), f"{field}: {file}")
    except OSError as error:
        raise UserError(f"{field}: {file} cannot be read ({error.strerror}); give a model's config.json") from error


def read_from_hub(model: str) -> dict[str, Any]:
    """Raises UserError. HF_ENDPOINT and HF_TOKEN count as for the hub's own client."""
    import httpx

    url = f"{os.environ.get('HF_ENDPOINT', HUB).rstrip('/')}/{model}/resolve/main/{CONFIG}"
    token = os.environ.get("HF_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = httpx.get(url, headers=headers, timeout=HUB_SECONDS, follow_redirects=True).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        sentence = (
            f"model.path = {model}: is no folder here, and {url} does not answer ({_reason(error)}); give "
            "--model-config FILE, the model's config.json"
        )
        raise refused_by_the_world(error, sentence) from error
    return _parsed(answer.content[:MAX_BYTES], url)


def _in_cache(model: str) -> Path | None:
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    folder = home / "hub" / f"models--{model.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except (OSError, ValueError):
        return None
    return folder / "snapshots" / revision / CONFIG


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _parsed(content: bytes, source: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise UserError(f"{source}: is not JSON; give a model's config.json") from error
    if not isinstance(found, dict):
        raise UserError(f"{source}: holds no mapping; give a model's config.json")
    return found
