"""`rollcast init`: from a model, data and a verifier to a run file that works."""

import math
import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from rollcast.cli.output import say
from rollcast.config.errors import UserError


def init(
    file: Annotated[Path, typer.Argument(help="run file to write")] = Path("my-run.yaml"),
    model: Annotated[
        str | None, typer.Option(help="folder of a Hugging Face model, or its name on the hub")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="JSONL or Parquet file, or a set of the hub")
    ] = None,
    verifier: Annotated[
        str | None, typer.Option(help="exact, math, ..., or a function of yours: ./reward.py:grade")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="200 (steps), 4h (device-hours), or none")
    ] = None,
    prompt_field: Annotated[
        str | None, typer.Option(help="field with the prompt, if its name is unusual")
    ] = None,
    answer_field: Annotated[
        str | None, typer.Option(help="field with the answer, if its name is unusual")
    ] = None,
    trusted: Annotated[
        bool,
        typer.Option(
            "--trusted", help="run the function with files and network, outside the sandbox"
        ),
    ] = False,
) -> None:
    """Look at a model, data and a verifier; write a run file; show the verifier's grades and the
    evaluation's error.

    On a terminal it asks for what no option says.

    \b
    rollcast init
    rollcast init my-run.yaml --model Qwen/Qwen3-0.6B --data rows.jsonl --verifier math --budget 200
    rollcast init --model ./model --data rows.parquet --verifier ./reward.py:grade --budget 4h
    """
    from rollcast.cli.plan.evaluation import describe_evaluation
    from rollcast.local import preflight
    from rollcast.local.checks.check import Start
    from rollcast.local.checks.checklist import check_start
    from rollcast.local.first_run.inspection import look_at, model_in_words
    from rollcast.local.first_run.run_file import Answers, run_file_text
    from rollcast.local.first_run.shown import examples

    if file.exists():
        raise UserError(f"{file}: is there already; name another file, or remove it")
    path = _ask("--model", model, "model (folder, or name on the hub)", _model)
    question = "data (JSONL or Parquet file, or a set of the hub)"
    rows = _ask(
        "--data", data, question, lambda dataset: look_at(dataset, prompt_field, answer_field)
    )
    look = look_at(rows, prompt_field, answer_field)
    say(f"data: {look.in_words}")
    chosen = _ask(
        "--verifier", verifier, "verifier (or a function: ./reward.py:grade)", _verifier, look.suits
    )
    budget_text = _ask(
        "--budget", budget, "budget (200 = steps, 4h = device-hours, none)", read_budget, "200"
    )
    steps, hours = read_budget(budget_text)
    answers = Answers(_name(file), path, look, chosen, trusted, steps, hours)
    _write(file, run_file_text(answers))
    try:
        config, filled_settings = preflight.load_to_start(file)
        cautions = check_start(Start(config))
    except BaseException:
        file.unlink()
        raise
    typer.echo(f"{file}: written and valid")
    typer.echo(f"model: {model_in_words(config.model.path)}")
    say(f"filled in: {preflight.in_words(filled_settings)}")
    for line in cautions:
        say(f"caution: {line}")
    for line in examples(config.tasks):
        typer.echo(line)
    for line in describe_evaluation(file):
        say(line)
    typer.echo(f"next: rollcast try --config {shlex.quote(str(file))}")


def read_budget(text: str) -> tuple[int | None, float | None]:
    """(steps, device-hours) of `200`, `4h` or `none`. Raises UserError."""
    if text == "none":
        return None, None
    steps_match = re.fullmatch(r"\d{1,9}", text)
    if steps_match and int(text) > 0:
        return int(text), None
    hours = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)h", text)
    if hours and 0 < float(hours[1]) < math.inf:
        return None, float(hours[1])
    raise UserError(
        f"--budget {text}: is not a budget; give steps such as 200, device-hours such as 4h, or "
        "none for a run that only Ctrl-C ends"
    )


def _ask(
    option: str,
    option_value: str | None,
    question: str,
    check: Callable[[str], object],
    usual: str | None = None,
) -> str:
    """The value of the option, or the user's answer on the terminal, asked again while `check`
    raises UserError.

    An option is checked later, with the whole file, so that one error reports every mistake. Raises
    UserError: there is neither an option nor a terminal.
    """
    if option_value is not None:
        return option_value
    if not sys.stdin.isatty():
        raise UserError(
            f"{option}: is missing; give it, or run `rollcast init` on a terminal, which asks for "
            "it"
        )
    from rollcast.local.first_run.inspection import NoPromptFieldError

    while True:
        answer = str(typer.prompt(question, default=usual))
        try:
            check(answer)
        except NoPromptFieldError:
            raise  # what an option must say
        except UserError as error:
            typer.echo(str(error), err=True)
        else:
            return answer


def _model(path: str) -> None:
    """Raises UserError: the folder on this machine is not a model that can be trained."""
    from rollcast.config.model import Model
    from rollcast.local.model_name import weight_bytes
    from rollcast.memory.text_model import check_causal

    check_causal(Model(path=path))
    weight_bytes(path)


def _verifier(name: str) -> None:
    """Raises UserError for one that is nowhere."""
    from rollcast.config.function_loading import check_file, is_function
    from rollcast.tasks.verifiers import find_verifier

    find_verifier(name)
    if is_function(name):
        check_file(name)


def _name(file: Path) -> str:
    """The run's name, made of the file's."""
    return re.sub(r"[^a-z0-9]+", "-", file.stem.lower())[:63].strip("-") or "my-run"


def _write(file: Path, text: str) -> None:
    try:
        with file.open("x") as run_file:  # never through a link, nor over a file that has just come
            run_file.write(text)
    except OSError as error:
        raise UserError(
            f"{file}: cannot be written ({error.strerror}); name another file"
        ) from error
