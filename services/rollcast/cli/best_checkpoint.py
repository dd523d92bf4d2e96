"""`rollcast show RUN --best`: the best of the kept checkpoints, and what to do with it."""

import shlex
from pathlib import Path

import typer

from rollcast.cli.output import echo_json, say


def print_best(run: Path, *, as_json: bool) -> None:
    """One sentence, a table, and the commands that use the checkpoint. Raises UserError."""
    from rollcast.curves.best_checkpoint import KeptLevels, best_in_words

    kept_levels = KeptLevels.from_folder(run)
    levels = kept_levels.levels
    step = levels.steps[levels.best]
    way = kept_levels.kept.way_to(step)
    export = shlex.join(
        ["rollcast", "model", "export", str(run), "--step", str(step), "--folder", "best"]
    )
    rows = kept_levels.rows
    if as_json:
        row = rows[levels.best]
        answer = {"best": row, "checkpoints": rows, "continue": way, "export": export}
        echo_json(answer)
        return
    say(f"{best_in_words(levels)}.")
    typer.echo("  step   level   90 % interval   reading   chance to be the best")
    for row in rows:
        mark = "*" if row["step"] == step else " "
        reading = "   -  " if row["reading"] is None else f"{row['reading']:6.3f}"
        typer.echo(
            f"{mark}{row['step']:>6}  {row['level']:6.3f}  {row['low']:6.3f} {row['high']:6.3f}   "
            f"{reading}   {100 * row['chance']:5.1f} %"
        )
    typer.echo(f"go on from it: {way}")
    typer.echo(f"its model: {export}")
