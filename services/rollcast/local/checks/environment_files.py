"""Files, programs, packages and tokens that `tasks.environments` names, looked for before a run
begins.
"""

from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.environments.kinds.kind import find_kind
from rollcast.local.checks.check import Start

SETTINGS = ("tasks",)


def check_environment_files(tasks: Tasks) -> None:
    """Raises UserError: a sentence for each that is not there."""
    sentences = [
        sentence
        for number, environment in enumerate(tasks.environments)
        for sentence in find_kind(environment).missing(environment, f"tasks.environments.{number}")
    ]
    if sentences:
        raise UserError("\n".join(sentences))


def check(start: Start) -> None:
    check_environment_files(start.config.tasks)
