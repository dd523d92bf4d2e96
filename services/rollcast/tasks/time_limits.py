"""How long a grading may take: programs with many tests get more time than an answer does."""

from rollcast.config.tasks import Grading
from rollcast.tasks.code_reference import num_tests
from rollcast.tasks.verifiers import CODE


def grading_seconds(settings: Grading, verifier: str, reference: str) -> float:
    """Deadline of one grading; `reference` is JSON text."""
    return settings.seconds_for(num_tests(reference) if verifier == CODE else 0.0)
