"""A model's config.json: in its folder, in the hub's cache on this machine, or on the hub."""

import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError, refused_by_the_world
from rollcast.memory.hub import beginning, hub_file, hub_limit, hub_url

CONFIG = "config.json"
MAX_CONFIG_BYTES = 1 << 20


def read_here(model: str) -> dict[str, Any] | None:
    """The config.json of `model`, a folder or a name on the hub; None if it is not here.

    Raises UserError.
    """
    folder = folder_here(model)
    return None if folder is None else read_file(folder / CONFIG, f"model.path = {model}")


def folder_here(model: str) -> Path | None:
    """This machine's folder of `model`, a folder or a name on the hub; None if there is no
    config.json.
    """
    for file in (Path(model) / CONFIG, _in_cache(model)):
        if file is not None and file.is_file():
            return file.parent
    return None


def read_file(file: Path, field: str) -> dict[str, Any]:
    """`field`: the setting or option that an error names. Raises UserError."""
    try:
        with file.open("rb") as stream:
            return _parse_config(stream.read(MAX_CONFIG_BYTES), f"{field}: {file}")
    except OSError as error:
        raise UserError(
            f"{field}: {file} cannot be read ({error.strerror}); give a model's config.json"
        ) from error


def read_from_hub(model: str) -> dict[str, Any]:
    """Raises UserError."""
    import httpx

    url = hub_url(model, CONFIG)
    try:
        with closing(hub_file(model, CONFIG, deadline=hub_limit())) as pieces:
            return _parse_config(beginning(pieces, MAX_CONFIG_BYTES), url)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        sentence = (
            f"model.path = {model}: is not a folder on this machine, and {url} does not answer "
            f"({_reason(error)}); give --model-config FILE, the model's config.json"
        )
        raise refused_by_the_world(error, sentence) from error


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


def _parse_config(content: bytes, source: str) -> dict[str, Any]:
    try:
        model_config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{source}: is not JSON; give a model's config.json") from error
    if not isinstance(model_config, dict):
        raise UserError(f"{source}: is not a JSON object; give a model's config.json")
    return model_config
