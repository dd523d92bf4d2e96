"""Has each verifier of the user's own grade a few rows."""

from collections.abc import Iterable

from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.tasks.trial import try_verifiers

SETTINGS = ("tasks",)


def check(start: Start) -> Iterable[Finding]:
    return warnings(try_verifiers(start.config.tasks, start.rewarded_prompts))
