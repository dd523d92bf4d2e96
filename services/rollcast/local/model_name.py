"""Whether `model.path` is a folder of this machine or a name on the Hugging Face hub."""

import difflib
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.local.demo.base_model import PLACEHOLDER, BaseModel
from rollcast.memory.model_file import CONFIG, folder_here, read_file

_HUB_NAME = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
WITHOUT_OWNER = frozenset(
    {"gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl", "distilgpt2", "openai-gpt", "ctrl"}
)
"""Causal language models that the hub knows without an owner, from before it had them."""
_DIGITS = re.compile(r"\d+")


def is_on_the_hub(path: str) -> bool:
    """Whether the path is taken for a name on the hub: it has the form of one, and no such file or
    folder is here.
    """
    return _HUB_NAME.fullmatch(path) is not None and not Path(path).exists()


def find_model_files(path: str) -> Path | None:
    """The model's files on this machine; None if they are missing or may not be read."""
    try:
        return folder_here(path)
    except OSError:
        return None


def check_hub_name(path: str) -> None:
    """Raises UserError for a name without an owner, which the hub does not know, or one that is
    nearly a folder's.
    """
    demos = (PLACEHOLDER, BaseModel().key)  # trained before it is asked for
    if path in (*WITHOUT_OWNER, *demos) or find_model_files(path) is not None:
        return
    folder = similar_folder(path)
    if "/" in path:
        if folder is not None and _is_misspelt(path, folder):
            raise UserError(
                f"model.path = {path}: there is no such folder; did you mean {folder}? If the "
                f"hub's model is meant, download it first: hf download {path}"
            )
        return
    meant = (
        f"did you mean {folder}?"
        if folder
        else "give the folder of a Hugging Face model, or its name on the hub"
    )
    raise UserError(
        f"model.path = {path}: there is no such folder, and names on the hub have an owner, as "
        f"Qwen/Qwen3-0.6B; {meant}"
    )


def weight_bytes(model: str) -> int:
    """Size of the model's weights on disk; 0 for a name on the hub, which the trainer looks up
    itself.

    Raises UserError for a folder that holds no model.
    """
    folder = Path(model)
    try:
        if is_on_the_hub(model):
            check_hub_name(model)
            return 0
        (folder / CONFIG).stat()
        # In the words of the check of the memory, so that one mistake is one sentence.
        read_file(folder / CONFIG, f"model.path = {model}")
        files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
        for file in files:
            with file.open("rb") as stream:
                stream.read(1)
        sizes = [file.stat().st_size for file in files]
    except UserError:
        raise
    except OSError as error:
        is_missing = isinstance(error, FileNotFoundError) and not folder.exists()
        close_folder = similar_folder(model) if is_missing else None
        raise UserError(
            (
                f"model.path = {model}: {Path(error.filename or folder).name} cannot be read "
                f"({error.strerror}); "
            )
            + (
                f"did you mean {close_folder}?"
                if close_folder
                else "give the folder of a Hugging Face model"
            )
        ) from error
    except ValueError as error:  # a null character in the path
        raise UserError(
            f"model.path = {model}: {error}; give the folder of a Hugging Face model"
        ) from error
    if not sum(sizes):
        raise UserError(
            f"model.path = {model}: holds no weights (*.safetensors); give the folder of a whole "
            "model"
        )
    return sum(sizes)


def _is_misspelt(path: str, folder: str) -> bool:
    """Whether a name differs by few letters only: neither another size of the model, nor its Base
    or Instruct.
    """
    name = Path(path).name.lower()
    folder_name = Path(folder).name.lower()
    if name != folder_name and (name.startswith(folder_name) or folder_name.startswith(name)):
        return False
    # Share of equal letters that makes a name a misspelt folder, although the hub may know it
    is_near = difflib.SequenceMatcher(None, name, folder_name).ratio() >= 0.8
    return is_near and _DIGITS.findall(folder) == _DIGITS.findall(path)


def similar_folder(path: str) -> str | None:
    """The folder of a model whose name is nearly that of the missing one, next to it or in a folder
    like its own.
    """
    missing_path = Path(path)
    parent: Path | None = missing_path.parent
    try:
        if not missing_path.parent.is_dir():
            parent = _nearest(missing_path.parent, missing_path.parent.parent.iterdir())
        if parent is None:
            return None
        close_folder = _nearest(
            parent / missing_path.name, (file.parent for file in parent.glob(f"*/{CONFIG}"))
        )
    except OSError:
        return None
    return None if close_folder is None else str(close_folder)


def _nearest(missing_path: Path, folders: Iterable[Path]) -> Path | None:
    # Neighbours of the missing folder that are looked at
    by_name = {folder.name.lower(): folder for folder in islice(folders, 1_000)}
    # Share of equal letters from which on a folder is offered in place of a name
    close_names = difflib.get_close_matches(missing_path.name.lower(), by_name, 1, 0.6)
    return by_name[close_names[0]] if close_names else None
