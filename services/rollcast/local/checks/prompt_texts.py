"""Training prompts that are too long, and those that the tokenizer cannot spell."""

import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice

from rollcast.local.checks.check import Finding, Start, warnings
from rollcast.tasks.chats import flat
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile

SETTINGS = ("tasks",)


def check(start: Start) -> Iterable[Finding]:
    if start.tokenizer is None:
        return ()
    limit = start.config.recipe.max_prompt_tokens
    return warnings(_prompt_warnings(limit, start.split, start.tokenizer))


def _prompt_warnings(limit: int, split: PromptSplit, tokenizer: TokenizerFile) -> Iterator[str]:
    """Sentences on prompts that are too long, and on those that the tokenizer cannot spell."""
    total = len(split.train)
    num_read = num_longer = num_unspelt = 0
    unspelt_texts: dict[str, None] = {}
    # How long they are read: a check stays quick whatever the data holds
    deadline = time.monotonic() + 2.0
    # Prompts that are read with the tokenizer: evenly spaced, so that all parts of the data are
    # among them
    for prompt in split.train[:: math.ceil(total / 1_000) or 1]:
        text = flat(prompt.messages)
        num_read += 1
        num_longer += tokenizer.count(text) > limit
        if new_texts := tokenizer.not_known(text):
            num_unspelt += 1
            unspelt_texts.update(dict.fromkeys(sorted(new_texts)))
        if time.monotonic() > deadline:
            break
    prompts_text = (
        f"{total} training prompts"
        if num_read == total
        else f"{num_read} training prompts looked at (of {total})"
    )
    if num_longer:
        yield (
            f"recipe.max_prompt_tokens = {limit}: {num_longer} of {prompts_text} are longer and "
            "will be left out; raise it to keep them"
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
            f"does not know ({examples}{more}), so the model does not read it; check that model "
            "and data belong together"
        )
