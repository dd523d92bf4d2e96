"""Every check before a start, in the order in which their findings are shown.

`config check`, `up`, `demo`, `try`, `init`, `ablate` and the chart's Job before an install use this
list. A new check is a module of this folder and its place here.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rollcast.config.errors import PassingError, UserError
from rollcast.config.sentences import overlap
from rollcast.local.checks import (
    causal_model,
    cautioned_cores,
    certificates,
    compiler,
    context_length,
    custom_functions,
    devices,
    disk,
    earlier_run,
    environment_classes,
    environment_files,
    environment_kinds,
    environment_trial,
    evaluations,
    free_ports,
    head_size,
    memory,
    model_name,
    named_cores,
    named_ports,
    prompt_lengths,
    prompt_texts,
    prompts,
    quantization,
    redis,
    rules,
    run_folder,
    thinking_marks,
    verifier_names,
    verifier_trial,
)
from rollcast.local.checks.check import Finding, Reach, Start, StartCheck


class CheckStage(NamedTuple):
    """Checks that do not depend on one another. They may depend on earlier stages."""

    reach: Reach
    """Left out if less can be looked at."""
    checks: tuple[StartCheck, ...]


CHECKLIST = (
    CheckStage(Reach.SETTINGS, (rules, environment_kinds)),
    CheckStage(
        Reach.MACHINE,
        (
            named_ports,
            certificates,
            disk,
            causal_model,
            context_length,
            head_size,
            model_name,
            earlier_run,
            named_cores,
            compiler,
            devices,
            custom_functions,
            verifier_names,
            environment_classes,
            environment_files,
            prompts,
        ),
    ),
    # These need the prompts that the stage before has read, and some run code of the user.
    CheckStage(
        Reach.MACHINE,
        (
            prompt_lengths,
            prompt_texts,
            thinking_marks,
            verifier_trial,
            environment_trial,
            cautioned_cores,
            run_folder,
        ),
    ),
    CheckStage(Reach.START, (free_ports, redis)),
    # Without a look at this machine too, but shown after the reasons that stop a run earlier.
    CheckStage(Reach.SETTINGS, (evaluations, memory, quantization)),
)


def make_checks(start: Start) -> Iterator[Finding]:
    """The findings of every check within the reach of `start`, none of them twice."""
    refused = start.mistaken
    shown_words: set[str] = set()
    for stage in CHECKLIST:
        refused_here: set[str] = set()
        for check in stage.checks if stage.reach <= start.reach else ():
            # A mistake that is reported already would show again, or hide behind a default.
            is_pointless = any(overlap(name, field) for name in check.SETTINGS for field in refused)
            findings = [] if is_pointless else _findings(check, start)
            # Several checks may read one broken file.
            yield from (finding for finding in findings if finding.words not in shown_words)
            shown_words.update(finding.words for finding in findings)
            if is_pointless or any(finding.refusal for finding in findings):
                refused_here.update(check.SETTINGS)
        refused |= refused_here


def _findings(check: StartCheck, start: Start) -> list[Finding]:
    try:
        return list(check.check(start) or ())
    except UserError as error:
        return [Finding(str(error), error)]


def check_start(start: Start) -> list[str]:
    """The warnings. Raises UserError for all refusals, one sentence each."""
    return without_refusals(make_checks(start))


def without_refusals(findings: Iterable[Finding]) -> list[str]:
    """The words of warnings.

    Raises UserError for all refusals; a PassingError if each of them may pass by itself.
    """
    all_findings = list(findings)
    errors = [finding.refusal for finding in all_findings if finding.refusal is not None]
    if errors:
        may_pass = all(isinstance(error, PassingError) for error in errors)
        kind = PassingError if may_pass else UserError
        raise kind("\n".join(map(str, errors))) from errors[0]
    return [finding.words for finding in all_findings]
