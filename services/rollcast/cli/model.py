"""`rollcast model`: put a model's folder at the path from which services load it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from rollcast.config.errors import UserError
from rollcast.local.merging import NOT_FETCHED

app = typer.Typer(
    help="Put a model into a folder, once, even if several processes ask for it.",
    no_args_is_help=True,
)
Folder = Annotated[
    Path, typer.Option(help="folder for the model's files; if it exists, it is left unchanged")
]
Dtype = Literal["base", "float32"]


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="on the Hugging Face hub")],
    folder: Folder,
    revision: Annotated[str, typer.Option(help="branch, tag or commit")] = "main",
) -> None:
    """Download a model from the hub. The environment variable HF_TOKEN is presented if it is set.

    \b
    rollcast model fetch Qwen/Qwen3-8B-Base --folder /models/qwen3-8b  # needs the network
    """
    with _alone(folder) as there:
        if there:
            return
        from huggingface_hub import snapshot_download

        # The folder is kept after a failure, so that the next try continues the download.
        partial = folder.parent / f".{folder.name}.partial"
        try:
            snapshot_download(
                name, revision=revision, local_dir=partial, ignore_patterns=NOT_FETCHED
            )
        except (
            Exception
        ) as error:  # HTTP errors, wrong names, full disks: each of the library's own kind
            reason = " ".join(str(error).split())[:300]
            raise UserError(
                f"model {name} at revision {revision} cannot be fetched ({reason}); "
                "check name, HF_TOKEN, network and disk"
            ) from error
        partial.rename(folder)
    typer.echo(f"{name} at {revision} is in {folder}")


@app.command()
def arithmetic(folder: Folder) -> None:
    """Train the demo's model of 0.6 M parameters from scratch: a minute on one core.

    \b
    rollcast model arithmetic --folder /models/arithmetic
    """
    with _alone(folder) as there:
        if there:
            return
        from rollcast.cli.demo import prepare_base_model
        from rollcast.local.demo.base_model import BaseModel

        os.environ["ROLLCAST_CACHE"] = str(folder.parent)
        folder.symlink_to(prepare_base_model(BaseModel()).name)


@app.command()
def merge(
    adapter: Annotated[
        Path, typer.Argument(help="folder of an adapter: the export of a run with model.lora")
    ],
    folder: Folder,
    base: Annotated[
        str | None,
        typer.Option(
            help="folder or name of the base model; left out, the one that the adapter names"
        ),
    ] = None,
    dtype: Annotated[
        Dtype,
        typer.Option(
            help="of the written weights: the base's own, which may round updates away, or float32"
        ),
    ] = "base",
) -> None:
    """Add an adapter to its base model: a whole model for programs that know no adapters.

    Says which share of the adapter's updates is lost to the rounding to the base's dtype.

    \b
    rollcast model merge runs/my-run/model --folder merged
    rollcast model merge runs/my-run/model --folder merged --dtype float32
    """
    from rollcast.local.merged_model import merge_adapter, merge_in_words

    with _alone(folder) as there:
        if not there:
            typer.echo(merge_in_words(merge_adapter(adapter, base, folder, dtype), folder))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="folder of a run, such as runs/demo")],
    folder: Folder,
    step: Annotated[
        int | None, typer.Option(help="of the checkpoint; left out, that of the best one")
    ] = None,
) -> None:
    """Write the model of a kept checkpoint, as a run does at its end: by default of the best one.

    It is read on the host in float32, even while the run goes on.

    \b
    rollcast model export runs/my-run --folder best
    rollcast model export runs/my-run --folder earlier --step 150
    """
    from rollcast.cli.show import load_run_settings
    from rollcast.local.checkpoint_export import export_checkpoint

    config = load_run_settings(run)
    with _alone(folder) as there:
        if there:  # by now another checkpoint may be the best one
            typer.echo(f"{folder} is there already and is left unchanged; name another --folder")
        else:
            exported_step = export_checkpoint(config, step, folder)
            typer.echo(f"the model of step {exported_step} is in {folder}")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Holds the folder's lock; yields whether the folder is there already, made by another."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (folder.parent / f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder.exists()
    except OSError as error:
        raise UserError(
            f"--folder = {folder}: cannot be written ({error.strerror or error}); free space or "
            "name another folder"
        ) from error
