"""Whether the tokenizer has the marks of a think block as tokens."""

from collections.abc import Iterable, Iterator

from rollcast.config.tasks import PromptFormat
from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.tasks.thinking import THINK_END, THINK_START
from rollcast.tasks.tokenizer_file import TokenizerFile

SETTINGS = ("tasks",)


def check(start: Start) -> Iterable[Finding]:
    if start.tokenizer is None:
        return ()
    return warnings(_think_mark_warnings(start.config.tasks.prompt_format, start.tokenizer))


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
