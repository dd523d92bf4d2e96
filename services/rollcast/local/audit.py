"""Changes that the newest rules make to a finished run: prompts that it should not have trained on,
rewards it gave.

checkpoint: prompts trained on --.
data, held out and downstream ---'-> trained prompts that ask what an evaluated one asks
samples.jsonl: answers, rewards ---> graded again -> rewards that change

A run stores the answers of a few prompts of each evaluation, not those that it was trained on.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from rollcast.config.printable import short_line
from rollcast.config.recipe import Recipe
from rollcast.config.rules_versions import FIRST_RULES, GRADING_RULES, SPLIT_RULES
from rollcast.config.tasks import Tasks
from rollcast.config.verifiers import JudgeVerifier
from rollcast.local.model_name import find_model_files
from rollcast.runfolder.files import SAMPLES, Place
from rollcast.runfolder.record_file import RecordFile
from rollcast.runfolder.rules import checkpoint_rules
from rollcast.runfolder.samples import SampledCompletion, SamplesRecord
from rollcast.tasks.grading import grade
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import PromptSplit, load
from rollcast.tasks.sandbox.client import Sandbox
from rollcast.tasks.thinking import THINK_END, whole_completion
from rollcast.tasks.tokenizer_file import TokenizerFile
from rollcast.tasks.verifiers import CODE, Grade

MATH = "math"
MAX_EXAMPLES = 5
MAX_SHOWN_CHARACTERS = 80
VERDICTS = ("ok", "wrong")
SAME_BY_RULE = "same by rule"
OF_JUDGES = "of language models as judges, whose score lines may be read otherwise now"
_CUT = re.compile(r" \[\.\.\. \d+ characters \.\.\.\] ")
_USUAL_ENDS = re.compile(r"(?:<\|[a-z_]{1,30}\|>|</s>|<eos>|<end_of_turn>)\s*$")


@dataclass(slots=True)
class RunAudit:
    """The counts, and the first few examples of each."""

    split_rules: int
    """Under which the run began. Without a checkpoint here those of the first releases are
    assumed."""
    grading_rules: int
    has_checkpoint: bool
    """False = which prompts were trained on is not known; all of the data count."""
    trained_prompts: int = 0
    contaminated_prompts: int = 0
    """Trained prompts that ask what a held-out or downstream prompt asks."""
    contaminated_uses: int = 0
    """How often they were trained on."""
    contaminated_examples: list[str] = field(default_factory=list)
    stored_rewards: int = 0
    """Verdicts in samples.jsonl."""
    same_by_rule: int = 0
    """Answers of verifiers and references whose rules are as before."""
    graded_again: int = 0
    changed_rewards: int = 0
    changes: dict[str, int] = field(default_factory=dict)
    """How many went from which reward to which."""
    changed_examples: list[str] = field(default_factory=list)
    not_graded_again: dict[str, int] = field(default_factory=dict)
    """How many could not be graded, by reason."""
    truncated_rewards: int = 0
    """Stored rewards above 0 of truncated answers, where these are trained on: they count 0 now."""

    def as_json(self) -> dict[str, object]:
        return asdict(self) | {
            "newest_split_rules": SPLIT_RULES,
            "newest_grading_rules": GRADING_RULES,
        }

    def in_words(self) -> list[str]:
        trained = "trained prompts"
        if not self.has_checkpoint:
            trained = "training prompts (no checkpoint says which were used)"
        lines = [
            f"split rules {self.split_rules} (newest {SPLIT_RULES}): of {self.trained_prompts:,} "
            f"{trained}, {self.contaminated_prompts:,} ask what a held-out or downstream prompt "
            f"asks; they were used {self.contaminated_uses:,} times",
            *(f"  {text}" for text in self.contaminated_examples),
            f"grading rules {self.grading_rules} (newest {GRADING_RULES}): of "
            f"{self.stored_rewards:,} stored rewards, {self.changed_rewards:,} change; "
            f"{self.graded_again:,} were graded again, {self.same_by_rule:,} are of verifiers and "
            "comparisons that did not change",
            *(f"  {change}: {count:,}" for change, count in sorted(self.changes.items())),
            *(f"  {text}" for text in self.changed_examples),
            *(
                f"  not graded again: {count:,} {reason}"
                for reason, count in sorted(self.not_graded_again.items())
            ),
        ]
        if self.truncated_rewards:
            lines.append(
                f"  {self.truncated_rewards:,} rewards of truncated answers count 0 in training now"
            )
        return lines


def audit(
    tasks: Tasks,
    recipe: Recipe,
    model_path: str,
    run_folder: Path,
    checkpoints: Place,
    progress: Callable[[str], None] = lambda line: None,
) -> RunAudit:
    """Grade the stored answers of a run again and look for evaluated prompts among the trained
    ones.

    Raises UserError if the data cannot be read, or this machine cannot grade programs.
    """
    rules = checkpoint_rules(checkpoints)
    split_rules = FIRST_RULES if rules is None else rules.split
    report = RunAudit(
        split_rules, FIRST_RULES if rules is None else rules.grading, rules is not None
    )
    split = load(tasks, min(split_rules, SPLIT_RULES))
    uses = {prompt.id: 1 for prompt in split.train} if rules is None else rules.uses
    _count_contaminated(report, split, uses)
    judges = frozenset(
        verifier.name for verifier in tasks.verifiers if isinstance(verifier, JudgeVerifier)
    )
    read_answer = partial(_read_answer, without_end=_EndOfText(model_path), judges=judges)
    grading = tasks.grading
    if grading.sandbox == "remote":  # a grader elsewhere has gone with the run
        grading = grading.model_copy(update={"sandbox": "strict"})
    samples = _samples(run_folder)
    with closing(Sandbox(grading)) as sandbox:
        _grade_again(
            report, samples, split, sandbox, read_answer, recipe.exclude_truncated, progress
        )
    return report


def _count_contaminated(report: RunAudit, split: PromptSplit, uses: dict[str, int]) -> None:
    report.trained_prompts = len(uses)
    for prompt in split.train:
        if prompt.id in split.contaminated and prompt.id in uses:
            report.contaminated_prompts += 1
            report.contaminated_uses += uses[prompt.id]
            if len(report.contaminated_examples) < MAX_EXAMPLES:
                report.contaminated_examples.append(short_line(prompt.text, MAX_SHOWN_CHARACTERS))


def _grade_again(
    report: RunAudit,
    samples: Iterable[tuple[SamplesRecord, SampledCompletion]],
    split: PromptSplit,
    sandbox: Sandbox,
    read_answer: Callable[[SampledCompletion, Prompt | None], tuple[str, str]],
    excludes_truncated: bool,
    progress: Callable[[str], None],
) -> None:
    find = _PromptFinder(chain(split.held_out, *split.downstream.values()))
    changes: Counter[str] = Counter()
    failures: Counter[str] = Counter()
    for record, sample in samples:
        report.stored_rewards += 1
        report.truncated_rewards += (
            sample.truncated and sample.reward > 0 and not excludes_truncated
        )
        prompt = find(sample)
        text, reason = read_answer(sample, prompt)
        if reason == SAME_BY_RULE:
            report.same_by_rule += 1
        elif reason or prompt is None:
            failures[reason] += 1
        else:
            new_grade = grade(prompt.verifier, text, prompt.verifier_reference, sandbox=sandbox)
            if (
                _note(report, new_grade, sample, changes, failures)
                and len(report.changed_examples) < MAX_EXAMPLES
            ):
                sample_location = f"{record.dataset}, step {record.step}"
                end = sample.completion[-MAX_SHOWN_CHARACTERS:]
                report.changed_examples.append(
                    f"{sample_location}: {short_line(end, MAX_SHOWN_CHARACTERS)}"
                )
            # Gradings between two lines about the progress
            if report.graded_again % 100 == 0:
                progress(f"{report.graded_again:,} answers graded again")
    report.changes = dict(changes)
    report.not_graded_again = dict(failures)


def _note(
    report: RunAudit,
    new_grade: Grade,
    sample: SampledCompletion,
    changes: Counter[str],
    failures: Counter[str],
) -> bool:
    """Count one grading; returns whether its reward is another."""
    if new_grade.status not in VERDICTS:
        failures["without a verdict now"] += 1
        return False
    report.graded_again += 1
    if new_grade.reward == sample.reward:
        return False
    report.changed_rewards += 1
    changes[f"{sample.reward:g} -> {new_grade.reward:g}"] += 1
    return True


def _read_answer(
    sample: SampledCompletion,
    prompt: Prompt | None,
    *,
    without_end: Callable[[str], str],
    judges: Container[str],
) -> tuple[str, str]:
    """The text to grade, or why it cannot be graded again, or need not be.

    `judges`: names of verifiers that are asked over the network.
    """
    if prompt is None:
        return "", "whose prompt is not in the data any more"
    if prompt.verifier in judges:
        return "", OF_JUDGES
    if not _may_change(prompt):
        return "", SAME_BY_RULE
    if sample.episode is not None:
        return "", "of episodes, which are stored in parts"
    text = without_end(sample.completion)
    parts = _CUT.split(text)
    if len(parts) == 1:
        return whole_completion(sample.prompt, text), ""
    _, thinking_end, answer = parts[-1].rpartition(THINK_END)
    return (thinking_end + answer, "") if thinking_end else ("", "whose stored text is cut")


def _may_change(prompt: Prompt) -> bool:
    """Whether rules of its verifier are others than before."""
    if prompt.verifier != CODE:
        return prompt.verifier == MATH
    reference = json.loads(prompt.verifier_reference)
    return (
        isinstance(reference, dict)
        and reference.get("comparison") != "exact"
        and reference.get("kind") != "tests"
    )


def _samples(run_folder: Path) -> Iterator[tuple[SamplesRecord, SampledCompletion]]:
    """The stored answers with a verdict."""
    for record in RecordFile(run_folder / SAMPLES, SamplesRecord).read():
        for sample in record.samples:
            if sample.status in VERDICTS:
                yield record, sample


class _PromptFinder:
    """The prompt of a stored answer, by its id; earlier releases stored none,
    and the text decides.
    """

    def __init__(self, prompts: Iterable[Prompt]) -> None:
        self._by_id = {prompt.id: prompt for prompt in prompts}
        self._longest_first = sorted(self._by_id.values(), key=lambda prompt: -len(prompt.text))
        self._by_text: dict[str, Prompt | None] = {}

    def __call__(self, sample: SampledCompletion) -> Prompt | None:
        if sample.prompt_id:
            return self._by_id.get(sample.prompt_id)
        if sample.prompt not in self._by_text:
            self._by_text[sample.prompt] = self._look_for(sample.prompt)
        return self._by_text[sample.prompt]

    def _look_for(self, text: str) -> Prompt | None:
        parts = _CUT.split(text)
        if len(parts) == 1:
            return next((prompt for prompt in self._longest_first if prompt.text in text), None)
        # The template is around a cut prompt: its own end, without the template's, is in the last
        # part.
        ends = (
            prompt
            for prompt in self._longest_first
            if prompt.text[-MAX_SHOWN_CHARACTERS:] in parts[-1]
        )
        return next(
            (prompt for prompt in ends if prompt.text[:MAX_SHOWN_CHARACTERS] in parts[0]), None
        )


class _EndOfText:
    """Takes the tokens that end a turn off a stored answer: graders never see them."""

    def __init__(self, model: str) -> None:
        folder = find_model_files(model)
        tokenizer = None if folder is None else TokenizerFile.read(folder, model)
        self._tokens = None if tokenizer is None else tuple(tokenizer.special_tokens())

    def __call__(self, text: str) -> str:
        if self._tokens is None:
            return _USUAL_ENDS.sub("", text)
        return next(
            (text.removesuffix(token) for token in self._tokens if token and text.endswith(token)),
            text,
        )
