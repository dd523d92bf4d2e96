"""`rollcast try`: a few completions and episodes of the real engine, graded, before a run is
started.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from rollcast.cli.output import say
from rollcast.config.printable import one_line, short_line
from rollcast.curves.amounts import format_count

if TYPE_CHECKING:
    from rollcast.config.recipe import Recipe
    from rollcast.local.trial import TimeOutlook
    from rollcast.runfolder.trial_records import TrialRecord, TriedCompletion

SHOWN_CHARACTERS = 160


def try_out(
    config: Annotated[Path, typer.Option(help="run file")],
    prompts: Annotated[
        int, typer.Option(min=1, max=1_000, help="how many prompts are sampled")
    ] = 4,
) -> None:
    """Sample a few prompts with the real engine, grade them, time one update of the trainer: what a
    step will take.

    Of each environment two episodes are played, and shown turn by turn. Nothing that is trained is
    kept.

    \b
    rollcast try --config my-run.yaml
    rollcast try --config my-run.yaml --prompts 16
    """
    from rollcast.local.checks.check import Start
    from rollcast.local.checks.checklist import check_start
    from rollcast.local.devices import usable_gpus, with_gpus
    from rollcast.local.preflight import load_to_start
    from rollcast.local.trial import outlook, time_update
    from rollcast.local.trial import try_out as tried_out

    settings, _ = load_to_start(config)
    for line in check_start(Start(settings)):
        say(f"caution: {line}")
    num_completions = settings.recipe.rollouts_per_prompt
    say(
        f"starting the engine; {format_count(prompts, 'prompt')}, "
        f"{format_count(num_completions, 'completion')} of each ..."
    )
    trial = tried_out(settings, prompts)
    for line in [
        *completions(trial),
        *episodes(trial),
        *figures(settings.recipe.max_completion_tokens, trial),
    ]:
        typer.echo(line)
    shares_gpu = with_gpus(settings.local, usable_gpus()).shares_gpu
    say("timing one update of the trainer on as many ...")
    times = outlook(
        settings.recipe,
        settings.tasks,
        settings.budget,
        trial,
        time_update(settings, trial),
        generators=settings.local.generators,
        workers=0 if shares_gpu else settings.generator.tensor_parallel,
    )
    for line in duration_lines(settings.recipe, settings.budget.device_hours, times):
        say(line)


def completions(trial: TrialRecord) -> list[str]:
    """The first completion of each prompt, with its verdict and how the others fared."""
    by_prompt: dict[str, list[TriedCompletion]] = {}
    for completion in trial.completions:
        if not completion.environment:
            by_prompt.setdefault(completion.prompt, []).append(completion)
    lines = []
    for prompt, group in by_prompt.items():
        first = group[0]
        verdict = _verdict(first)
        rewards = (f"{rollout.reward:g}" if _is_graded(rollout) else "-" for rollout in group)
        lines += [
            f"prompt: {short_line(prompt, SHOWN_CHARACTERS)}",
            f"    {short_line(first.text, SHOWN_CHARACTERS) or '(nothing)'} -> {verdict}",
            f"    rewards of all {len(group)}: {' '.join(rewards)}",
        ]
    return lines


def episodes(trial: TrialRecord) -> list[str]:
    """Each episode, turn by turn."""
    lines = []
    for episode in trial.completions:
        if not episode.environment:
            continue
        num_turns = format_count(len(episode.turns), "turn")
        lines.append(
            f"episode in {episode.environment}: {num_turns}, {episode.end}, {_verdict(episode)}"
        )
        lines.append(f"    prompt: {short_line(episode.prompt, SHOWN_CHARACTERS)}")
        for turn in episode.turns:
            lines.append(f"    model: {short_line(turn.text, SHOWN_CHARACTERS) or '(nothing)'}")
            if turn.answer:
                lines.append(f"    world: {short_line(turn.answer, SHOWN_CHARACTERS)}")
    return lines


def figures(max_tokens: int, trial: TrialRecord) -> list[str]:
    """Pass rate, lengths, truncation, and the number of completions without a grade."""
    tried = trial.completions
    graded = [completion for completion in tried if _is_graded(completion)]
    lengths = sorted(rollout.num_tokens for rollout in tried)
    lines = []
    if graded:
        right = sum(
            rollout.reward for rollout in graded if not rollout.truncated
        )  # as in evaluations
        lines.append(f"pass rate: {right / len(graded):.3f} of {len(graded)} completions")
        if len({rollout.reward for rollout in graded}) == 1:
            lines.append(
                f"caution: every one has reward {graded[0].reward:g}, and groups without a "
                "difference teach nothing; "
                "look at verifier and template, or take easier or harder prompts"
            )
    failures = Counter(rollout.failure for rollout in tried if not _is_graded(rollout))
    lines += [
        f"no verdict on {count} completions: {one_line(failure)}"
        for failure, count in failures.most_common(3)
    ]
    truncated = sum(rollout.truncated for rollout in tried) / len(tried)
    lines.append(
        f"lengths: median {median(lengths):g}, longest {lengths[-1]} of {max_tokens} tokens; "
        f"{truncated:.0%} were cut off"
    )
    return lines


def duration_lines(recipe: Recipe, device_hours: float | None, outlook: TimeOutlook) -> list[str]:
    """Lines on the time that a step and the budget will take."""
    lines = [
        (
            f"speed: {outlook.tokens_per_second:.0f} tokens/s with {outlook.at_once} concurrent "
            "completions"
        ),
        f"a step ({recipe.prompts_per_step} x {recipe.rollouts_per_prompt} completions): about "
        f"{_duration(outlook.step_seconds)}; generation takes "
        f"{_duration(outlook.generation_seconds)}, the trainer "
        f"{_duration(outlook.update_seconds)}, side by side",
        f"an evaluation: about {_duration(outlook.evaluation_seconds)}",
    ]
    if outlook.total_seconds is not None:
        budget_text = f"{outlook.num_steps} steps"
        if device_hours is not None:
            budget_text = (
                f"{device_hours:g} device-hours, enough for {budget_text} on {outlook.num_devices} "
                "devices"
            )
        lines.append(f"the budget of {budget_text}: about {_duration(outlook.total_seconds)}")
    lines.append(
        "not included: start, checkpoints, and the time that the two cost one another on few "
        "cores; more concurrent completions are faster than these"
    )
    return lines


def _verdict(completion: TriedCompletion) -> str:
    return (
        f"reward {completion.reward:g}"
        if _is_graded(completion)
        else f"no verdict: {one_line(completion.failure)}"
    )


def _is_graded(completion: TriedCompletion) -> bool:
    return completion.status in ("ok", "wrong")


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
