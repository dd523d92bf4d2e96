"""Whether each verifier that the data sets name is there."""

from collections.abc import Iterable

from rollcast.config.errors import UserError
from rollcast.config.function_loading import check_file, is_function
from rollcast.local.checks.check import Finding, Start, refusals
from rollcast.tasks.grading import Verifiers
from rollcast.tasks.mappings import verifier_names
from rollcast.tasks.verifiers import is_built_in

SETTINGS = ("tasks",)


def check(start: Start) -> Iterable[Finding]:
    tasks = start.config.tasks
    verifiers = Verifiers.from_tasks(tasks)
    sentences = [
        f"tasks.verifiers.{number}.name = {verifier.name!r}: a built-in verifier has that "
        "name; choose another"
        for number, verifier in enumerate(tasks.verifiers)
        if is_built_in(verifier.name)
    ]
    for name in sorted(verifier_names(tasks)):
        try:
            verifier = verifiers.find(name)
            check_file(name if is_function(name) else verifier.source)
        except UserError as error:
            sentences.append(str(error))
    return refusals(sentences)
