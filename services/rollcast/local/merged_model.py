"""A whole model from an adapter and its base: finds the base, and starts the process that adds
them.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.local.merging import ADAPTER_CONFIG, ADAPTER_FILE, NOT_FETCHED, Merge, MergedDtype

TYPE_NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


def merge_adapter(
    adapter: Path, base: str | None, folder: Path, dtype: MergedDtype = "base"
) -> Merge:
    """Make `folder`.

    `base`: folder or name on the hub; None = what the adapter's config names. Raises UserError.
    """
    try:
        config = json.loads((adapter / ADAPTER_CONFIG).read_text())
        named = config["base_model_name_or_path"]
        (adapter / ADAPTER_FILE).open("rb").close()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"{adapter} cannot be read as an adapter ({error}); give the folder that a run with "
            "model.lora exported"
        ) from error
    for library in ("torch", "safetensors"):
        if find_spec(library) is None:
            raise UserError(
                f"rollcast model merge: {library} is not installed; run pip install "
                "'rollcast[trainer]'"
            )
    source = _find_base_folder(base or str(named), config.get("revision") if base is None else None)
    # Torch's memory goes away with the process, and the command line does not import it.
    command = [
        sys.executable,
        "-m",
        "rollcast.local.merging",
        str(adapter),
        str(source),
        str(folder),
        dtype,
    ]
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603  # our own module
    if process.returncode != 0:
        reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise UserError(
            f"{adapter} cannot be added to {source} ({reason}); name its base model with --base"
        )
    return Merge(**json.loads(process.stdout.splitlines()[-1]))


def merge_in_words(merge: Merge, folder: Path) -> str:
    """The number of weights, and the share of the updates that rounding lost."""
    types = " and ".join(TYPE_NAMES[dtype] for dtype in merge.dtypes)
    done = f"{merge.num_weights} weights of {folder} have the adapter added, written in {types}"
    if not merge.num_lost:
        return f"{done}; no update is lost"
    return (
        f"{done}; {merge.lost_share:.2%} of the {merge.num_updates:,} updates are lost, because "
        "they are smaller than the dtype resolves; --dtype float32 keeps them"
    )


def _find_base_folder(base: str, revision: str | None) -> Path:
    path = Path(base).expanduser()
    if path.is_dir():
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(base, revision=revision, ignore_patterns=NOT_FETCHED))
    except (
        Exception
    ) as error:  # HTTP errors, wrong names, full disks: each of the library's own kind
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"base model {base} is no folder here and cannot be fetched ({reason}); name its "
            "folder with --base"
        ) from error
