"""The tasks of a taskset as a data set:

    python -m rollcast.environments.verifiers RUN.yaml NAME [--tasks N] [--seed S] > rows.jsonl

NAME: of the environment in `tasks.environments`. Each row has the task's chat in `prompt`, and all
that builds the task again in `task`. --tasks: that many, drawn by the seed. A taskset without an
end needs it, and gives the tasks from number S x N on; those before are made too, which takes time.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.environments.harness.interpreter import adapter_command
from rollcast.environments.verifiers import adapter

MAX_ROW_CHARACTERS = 64 << 20


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.environments.verifiers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run_file", metavar="RUN.yaml", type=Path)
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--tasks", metavar="N", type=positive)
    parser.add_argument("--seed", metavar="S", type=positive_or_zero)
    options = parser.parse_args(arguments)
    if options.seed is not None and options.tasks is None:
        parser.error("--seed chooses tasks: give their number as --tasks")
    try:
        write_rows(find_settings(options.run_file, options.name), options.tasks, options.seed or 0)
    except UserError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def find_settings(run_file: Path, name: str) -> VerifiersEnvironment:
    """The environment of this name. Raises UserError."""
    environments = [
        environment
        for environment in load_run_config(run_file).tasks.environments
        if isinstance(environment, VerifiersEnvironment)
    ]
    for candidate in environments:
        if candidate.name == name:
            return candidate
    environment_names = (
        ", ".join(named_environment.name for named_environment in environments) or "there is none"
    )
    raise UserError(
        f"NAME = {name}: is not an environment of kind verifiers in {run_file} "
        f"({environment_names}); correct it"
    )


def positive(text: str) -> int:
    """A number of tasks. Raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def positive_or_zero(text: str) -> int:
    """A seed. Raises ValueError."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def write_rows(settings: VerifiersEnvironment, num_tasks: int | None, seed: int) -> None:
    """Write the rows to standard output. num_tasks: None = all. Raises UserError."""
    request = json.dumps(
        {
            "taskset": settings.taskset,
            "arguments": settings.arguments,
            "num_tasks": num_tasks,
            "seed": seed,
        }
    )
    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own interpreter
            adapter_command(settings.interpreter, adapter, "rows"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        raise UserError(
            f"interpreter = {settings.interpreter}: cannot be started ({error.strerror}); give "
            "the python of a virtual environment"
        ) from error
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request)
            process.stdin.close()
            while line := process.stdout.readline(MAX_ROW_CHARACTERS):
                row = parse_row(line)
                if "failed" in row:
                    raise UserError(f"taskset = {settings.taskset}: {row['failed']}")
                print(json.dumps({**row, "environment": settings.name}))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise UserError(
            f"taskset = {settings.taskset}: its Python ended with exit code {process.returncode}; "
            "see above"
        )


def parse_row(line: str) -> dict[str, Any]:
    """A row of the other side. Raises UserError."""
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        raise UserError(
            f"a task has more than {MAX_ROW_CHARACTERS >> 20} million characters; leave it out"
        ) from None
    return row


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
