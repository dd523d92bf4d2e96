"""`rollcast plan evaluation`: how many held-out prompts
and samples measure a pass rate how well.
"""

from pathlib import Path
from typing import Annotated

import typer

from rollcast.cli import curve_options as options
from rollcast.cli.output import echo_json
from rollcast.config.errors import UserError
from rollcast.scaling.law.evaluation_error import evaluation_error
from rollcast.scaling.law.settings import DEFAULT_BETWEEN_PROMPT_SHARE

PROMPT_COUNTS = (20, 50, 100, 200, 500, 1_000)
"""Held-out prompts in the rows of the table."""
SAMPLE_COUNTS = (1, 4, 16)
"""Samples of each prompt in the columns of the table."""


def evaluation(
    config: Annotated[
        Path | None,
        typer.Option(
            help=(
                "run file: show the error of its evaluation, and check that no held-out prompt is "
                "trained on"
            )
        ),
    ] = None,
    pass_rate: Annotated[
        float, typer.Option(min=0, max=1, help="about which the interval is wanted")
    ] = 0.5,
    spread: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="share of the variance between prompts: 0 = all equally hard, 1 = always or never",
        ),
    ] = DEFAULT_BETWEEN_PROMPT_SHARE,
    as_json: options.AsJson = False,
) -> None:
    """Say which interval of the pass rate N held-out prompts with k samples each give.

    Once for these very prompts, as a curve shows it, once for others of their kind.

    \b
    rollcast plan evaluation
    rollcast plan evaluation --pass-rate 0.2 --spread 0.8
    rollcast plan evaluation --config my-run.yaml
    """
    table = [
        {"prompts": prompts, "samples": samples}
        | evaluation_error(prompts, samples, pass_rate, spread)._asdict()
        for prompts in PROMPT_COUNTS
        for samples in SAMPLE_COUNTS
    ]
    if as_json:
        echo_json(table)
        return
    if config is not None:
        for line in describe_evaluation(config, pass_rate, spread):
            typer.echo(line)
        typer.echo("")
    typer.echo(
        f"90 % interval of a pass rate of {pass_rate:g}, on these prompts | on others of their "
        "kind:"
    )
    typer.echo("prompts" + "".join(f"{f'{samples} samples':>20}" for samples in SAMPLE_COUNTS))
    for prompts in PROMPT_COUNTS:
        errors = (
            evaluation_error(prompts, samples, pass_rate, spread) for samples in SAMPLE_COUNTS
        )
        cells = (f"±{error.same_prompts:.3f} | ±{error.other_prompts:.3f}" for error in errors)
        typer.echo(f"{prompts:>7}" + "".join(f"{cell:>20}" for cell in cells))


def describe_evaluation(
    file: Path, pass_rate: float = 0.5, spread: float = DEFAULT_BETWEEN_PROMPT_SHARE
) -> list[str]:
    """The errors of each part of the run file's evaluation.

    Raises UserError if a held-out prompt is trained on.
    """
    from rollcast.local.preflight import load_to_start
    from rollcast.tasks.contamination import normal_form
    from rollcast.tasks.prompt import Prompt
    from rollcast.tasks.prompts import load

    def question(prompt: Prompt) -> tuple[str, str]:
        return normal_form(prompt.text), prompt.reference if prompt.environment else ""

    tasks = load_to_start(file)[0].tasks
    split = load(tasks)
    trained = set(map(question, split.train))
    shared = [prompt for prompt in split.held_out if question(prompt) in trained]
    if shared:
        raise UserError(
            f"run file {file}: {len(shared)} held-out prompts are also trained on, such as "
            f"{shared[0].text[:80]!r}; remove one of the two"
        )
    lines = []
    for mixture_part in tasks.parts:
        prompts = tasks.held_out_prompts(mixture_part)
        samples = tasks.evaluation.rollouts_per_prompt
        error = evaluation_error(prompts, samples, pass_rate, spread)
        lines.append(
            f"{mixture_part.dataset.name}: {prompts} held-out prompts, {samples} samples of each: "
            f"a pass rate of {pass_rate:g} is measured to ±{error.same_prompts:.3f} on these "
            f"prompts, ±{error.other_prompts:.3f} on others of their kind (90 %)"
        )
    lines.append(
        f"none of the {len(split.held_out)} held-out prompts is among the {len(split.train)} "
        "trained on"
    )
    return lines
