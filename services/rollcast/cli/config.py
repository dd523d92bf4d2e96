"""`rollcast config check FILE`, `rollcast config schema`"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Check run files, or print what they may hold.", no_args_is_help=True, rich_markup_mode=None)


@app.command()
def check(file: Annotated[Path, typer.Argument(help="run file, YAML or JSON")]) -> None:
    """Say whether a run file is right; name each wrong field, its value and the remedy.

    A verifier that is not installed on this machine is warned of: the generators' may have it.

    \b
    rollcast config check my-run.yaml
    """
    from rollcast.config.errors import UserError
    from rollcast.config.run import load_run_config
    from rollcast.tasks.prompts import verifier_names
    from rollcast.tasks.verifiers import find_verifier

    config = load_run_config(file)
    for name in sorted(verifier_names(config.tasks)):
        try:
            find_verifier(name)
        except UserError as error:
            typer.echo(f"warning: {error} where completions are graded", err=True)
    typer.echo(f"{file}: right (run {config.run!r}, results in {config.run_folder})")


@app.command()
def schema() -> None:
    """Print the JSON schema of run files, with every setting's meaning and default.

    \b
    rollcast config schema > run.schema.json
    """
    from rollcast.config.run import RunConfig

    typer.echo(json.dumps(RunConfig.model_json_schema(), indent=1))
