"""Export: a folder that `from_pretrained` reads and servers serve.

Weights in the model's dtype, config, generation config and tokenizer.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import GENERATION_CONFIG_NAME, cached_file

from rollcast.config.errors import refused_by_the_world
from rollcast.config.model import Model
from rollcast.weights.snapshot import Snapshot


def export_weights(snapshot: Snapshot, settings: Model, folder: Path) -> None:
    """Write the gathered weights as a Hugging Face folder, whole or not at all; an existing export is replaced.

    Raises UserError if the folder cannot be written.
    """
    partial = folder.with_name(f".partial-{folder.name}")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _write(snapshot, settings, partial)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise refused_by_the_world(
            error, f"export folder {folder} cannot be written ({error.strerror or error}); free space or choose another"
        ) from error


def _write(snapshot: Snapshot, settings: Model, folder: Path) -> None:
    config = AutoConfig.from_pretrained(settings.path, trust_remote_code=settings.trust_remote_code)
    dtype = getattr(torch, settings.dtype)
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=settings.trust_remote_code)
    skeleton.save_pretrained(folder, state_dict={name: tensor.cpu() for name, tensor in snapshot.views()})
    tokenizer = AutoTokenizer.from_pretrained(settings.path, trust_remote_code=settings.trust_remote_code)
    tokenizer.save_pretrained(folder)
    # Several end tokens and how to sample stand here alone; where the source has none, what its config implies stays.
    generation = cached_file(settings.path, GENERATION_CONFIG_NAME, _raise_exceptions_for_missing_entries=False)
    if generation is not None:
        shutil.copyfile(generation, folder / GENERATION_CONFIG_NAME)
    _let_the_umask_decide(folder)


def _let_the_umask_decide(folder: Path) -> None:
    """safetensors writes for the owner alone; whoever may list the folder may read the model."""
    mode = folder.stat().st_mode & 0o666
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(mode)
