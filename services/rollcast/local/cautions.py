"""Facts that a user should know before a run starts: each a sentence, none of them an error."""

import math
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from rollcast.config.rules_versions import contaminated_in_words
from rollcast.config.services import Generator, Local
from rollcast.config.tasks import PromptFormat
from rollcast.local.demo.base_model import PLACEHOLDER
from rollcast.local.devices import num_devices, usable_gpus
from rollcast.local.frozen_forecast import LEAST_EVALUATIONS
from rollcast.local.model_name import find_model_files, is_on_the_hub, similar_folder
from rollcast.tasks.chats import flat
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.thinking import THINK_END, THINK_START
from rollcast.tasks.tokenizer_file import TokenizerFile

NEEDS_DEEP_GEMM = "fp8_per_block"
"""The quantization with scales for blocks of weights."""
_LEFT_OUT = {
    "duplicate": "ask what an earlier row asks",
    "downstream": "ask what a downstream set asks",
    "contaminated": "ask what a held-out or downstream prompt asks, in another spelling",
    "empty": "are empty lines",
    "other_date": "are not between from_date and to_date",
    "no_date": "have no date that can be read (contest_date)",
}
"""Sentences about the rows left out, by PromptSplit's reason."""


def data_warnings(split: PromptSplit) -> list[str]:
    """Which rows are left out, and which stay that a new run would leave out."""
    return [
        *contaminated_in_words(len(split.contaminated)),
        *(
            (
                f"tasks.dataset: {count} {'row is' if count == 1 else 'rows are'} left out: they "
                f"{explanation}"
            )
            for reason, explanation in _LEFT_OUT.items()
            if (count := split.skipped.get(reason, 0))
        ),
    ]


def token_warnings(
    max_prompt_tokens: int,
    prompt_format: PromptFormat,
    split: PromptSplit,
    tokenizer: TokenizerFile,
) -> list[str]:
    """Cautions about the prompts and the marks of a think block, as the model's tokenizer reads
    them.
    """
    return [
        *_prompt_warnings(max_prompt_tokens, split, tokenizer),
        *_think_mark_warnings(prompt_format, tokenizer),
    ]


def model_name_warnings(path: str) -> list[str]:
    """If `path` is taken for a name on the hub, though it begins with a folder that is here."""
    if path == PLACEHOLDER and not Path(path).exists():
        return [
            (
                f"model.path = {path}: is the demo's model, which `rollcast demo` trains; "
                "`rollcast up` needs its folder"
            )
        ]
    owner = path.partition("/")[0]
    try:
        looks_like_a_folder = is_on_the_hub(path) and Path(owner).is_dir()
    except OSError:  # whoever reads the model says so
        return []
    if not looks_like_a_folder or find_model_files(path) is not None:
        return []
    close_folder = similar_folder(path)
    meant = f"did you mean {close_folder}?" if close_folder else f"./{path} would be a folder"
    return [
        f"model.path = {path}: is not in the folder {owner}, so the hub is asked for it; {meant}"
    ]


def evaluation_warnings(every: int, steps: int | None) -> list[str]:
    """If they are too few for a forecast. `every`: steps between two. `steps`: of the budget."""
    points = LEAST_EVALUATIONS if steps is None else math.ceil(steps / every)
    if steps is None or points >= LEAST_EVALUATIONS:
        return []
    curve = (
        "only at its start and at its end"
        if points == 1
        else f"only {points} times after its start"
    )
    max_interval_steps = max(1, steps // LEAST_EVALUATIONS)
    more = "" if steps >= LEAST_EVALUATIONS else f", and at least {LEAST_EVALUATIONS} steps"
    return [
        f"tasks.evaluation.every_steps = {every}: with budget.steps {steps} the curve is measured "
        f"{curve}, and a "
        f"forecast takes {LEAST_EVALUATIONS} evaluations after the start; set at most "
        f"{max_interval_steps}{more}"
    ]


def core_warnings(local: Local, generator: Generator) -> list[str]:
    """If they are too few: without a GPU every generator and every rank of the trainer takes a
    core.
    """
    generators = local.generators
    ranks = local.trainer_ranks
    needed = num_devices(local, generator)
    cores = len(os.sched_getaffinity(0))
    if needed <= max(cores, 2) or usable_gpus():
        return []
    max_generators = max(1, (cores - ranks) // generator.tensor_parallel)
    remedy = (
        f"local.generators = {max_generators}"
        if max_generators < generators
        else "local.trainer_ranks = 1"
    )
    return [
        f"local.generators = {generators}, local.trainer_ranks = {ranks}: they keep {needed} cores "
        "busy, and this "
        f"process may run on {cores}, so they slow one another down; set {remedy}"
    ]


def quantization_warnings(quantization: str | None) -> list[str]:
    """If the engine must compile its kernels for it, and has no compiler. `quantization`: of
    generator.engine.

    vLLM (model_executor/kernels/linear/scaled_mm/deep_gemm.py) chooses DeepGEMM for blocks of 128
    on Hopper and newer.
    """
    if quantization != NEEDS_DEEP_GEMM:
        return []
    return [
        f"generator.engine.quantization = {quantization}: on an H100 or newer vLLM computes it "
        "with DeepGEMM, which "
        "compiles its kernels with nvcc while the engine starts, and neither the image nor vLLM's "
        "wheel has nvcc; set "
        "fp8_per_channel, install CUDA's toolkit, or set VLLM_USE_DEEP_GEMM=0 for the generators"
    ]


def _prompt_warnings(limit: int, split: PromptSplit, tokenizer: TokenizerFile) -> Iterator[str]:
    """Sentences on prompts that are too long, and on those that the tokenizer cannot spell."""
    total = len(split.train)
    num_read = num_longer = num_unspelt = 0
    unspelt_texts: dict[str, None] = {}
    # How long they are read: a check stays quick whatever the data holds
    until = time.monotonic() + 2.0
    # Prompts that are read with the tokenizer: evenly spaced, so that all parts of the data are
    # among them
    for prompt in split.train[:: math.ceil(total / 1_000) or 1]:
        text = flat(prompt.messages)
        num_read += 1
        num_longer += tokenizer.count(text) > limit
        if new_texts := tokenizer.not_known(text):
            num_unspelt += 1
            unspelt_texts.update(dict.fromkeys(sorted(new_texts)))
        if time.monotonic() > until:
            break
    prompts_text = (
        f"{total} training prompts"
        if num_read == total
        else f"{num_read} training prompts looked at (of {total})"
    )
    if num_longer:
        yield (
            f"recipe.max_prompt_tokens = {limit}: {num_longer} of {prompts_text} are longer and "
            "will be left out; "
            "raise it to keep them"
        )
    if num_unspelt:
        # Examples in one sentence.
        max_shown = 5
        examples = ", ".join(repr(text[:20]) for text in islice(unspelt_texts, max_shown))
        more = (
            f" and {len(unspelt_texts) - max_shown} more" if len(unspelt_texts) > max_shown else ""
        )
        yield (
            f"tasks.dataset: {num_unspelt} of {prompts_text} hold text that the model's tokenizer "
            "does not know "
            f"({examples}{more}), so the model does not read it; check that model and data belong "
            "together"
        )


def _think_mark_warnings(layout: PromptFormat, tokenizer: TokenizerFile) -> Iterator[str]:
    if layout.layout != "think" and not layout.open_thinking:
        return
    lacks = [mark for mark in (THINK_START, THINK_END) if not tokenizer.has(mark)]
    if not lacks:
        return
    setting = "layout = think" if layout.layout == "think" else "open_thinking = true"
    marks = " and ".join(lacks)
    if unspelt := set().union(*(tokenizer.not_known(mark) for mark in lacks)):
        problem = f"cannot spell {marks} ({', '.join(map(repr, sorted(unspelt)))} is not known)"
        remedy = (
            "no completion can close its thinking; use a model whose tokenizer can, or layout: bare"
        )
    else:
        counts = sorted({tokenizer.count(mark) for mark in lacks})
        problem = (
            f"has no token {marks} and writes {' or '.join(map(str, counts))} tokens in its place"
        )
        remedy = (
            "the model must learn to write it letter by letter; a tokenizer with these tokens "
            "learns it sooner"
        )
    yield f"tasks.prompt_format.{setting}: the model's tokenizer {problem}; {remedy}"
