"""`python -m rollcast.environments.verifiers RUN.yaml NAME > rows.jsonl`: the tasks of a taskset as
a data set.

NAME: of the environment in `tasks.environments`. Each row has the task's chat in `prompt`, and all
that builds the task again in `task`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rollcast.config.environments.verifiers import VerifiersEnvironment
from rollcast.config.errors import UserError
from rollcast.config.run import load_run_config
from rollcast.environments.verifiers.looking import command

USAGE = "usage: python -m rollcast.environments.verifiers RUN.yaml NAME > rows.jsonl"
MAX_ROW_CHARACTERS = 64 << 20


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(USAGE, file=sys.stderr)
        return 2
    try:
        write_rows(find_settings(Path(arguments[0]), arguments[1]))
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


def write_rows(settings: VerifiersEnvironment) -> None:
    """Write the rows to standard output. Raises UserError."""
    request = json.dumps({"taskset": settings.taskset, "arguments": settings.arguments})
    try:
        process = subprocess.Popen(  # noqa: S603  # the user's own interpreter
            command(settings, "rows"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
    except OSError as error:
        raise UserError(
            f"interpreter = {settings.interpreter}: cannot be started ({error.strerror}); give the "
            "python of a virtual "
            "environment"
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
