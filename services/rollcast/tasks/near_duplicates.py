"""Training prompts that nearly repeat an evaluated prompt: both hold the same thirteen words in a
row.

They are counted and named, not removed: a common phrase is no copy. So sequences do not count that
many evaluated prompts hold, nor those that many training prompts hold, unless half of an evaluated
prompt is repeated.
"""

import itertools
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from rollcast.config.datasets import Dataset, RowsDataset
from rollcast.config.tasks import Tasks
from rollcast.tasks.fields import shorten
from rollcast.tasks.mappings import resolve_mapping
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import PromptSplit

NUM_WORDS = 13
"""Words of a sequence, as in the overlap that GPT-3's authors looked for (arXiv 2005.14165,
appendix C)."""
MAX_PAIRS = 20
_WORD = re.compile(r"\w+")

Sequence = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    num_prompts: int
    """Training prompts that nearly repeat an evaluated one."""
    pairs: list[tuple[str, str]]
    """A training prompt and the evaluated one, without their templates; those with the largest
    overlap."""

    def in_words(self) -> list[str]:
        """Nothing without such prompts."""
        if not self.num_prompts:
            return []
        subject = f"{self.num_prompts:,} training prompts nearly repeat"
        if self.num_prompts == 1:
            subject = "1 training prompt nearly repeats"
        examples = "; ".join(
            f"{_short(training_text)!r} and {_short(evaluated_text)!r}"
            for training_text, evaluated_text in self.pairs
        )
        more = f" (the first {len(self.pairs)})" if self.num_prompts > len(self.pairs) else ""
        return [
            f"tasks.dataset: {subject} a held-out or downstream prompt, {NUM_WORDS} words in a "
            f"row{more}: {examples}; remove rows that are copies"
        ]


def near_duplicates(tasks: Tasks, split: PromptSplit) -> NearDuplicates:
    """Takes some seconds for 100,000 prompts.

    Generated sets are left out: no two of their prompts are alike.
    """
    bare_text = _find_bare_texts(tasks)
    evaluated: list[tuple[str, set[Sequence]]] = []
    holders: defaultdict[Sequence, list[int]] = defaultdict(list)
    for prompt in itertools.chain(split.held_out, *split.downstream.values()):
        text = bare_text(prompt)
        sequences = set() if text is None else set(_sequences(_words(text)))
        for sequence in sequences:
            holders[sequence].append(len(evaluated))
        evaluated.append((text or "", sequences))
    # Evaluated prompts that may hold a sequence; what more of them hold is a phrase of their set
    rare_sequences = {sequence: places for sequence, places in holders.items() if len(places) <= 3}
    overlapping_texts = _shared(rare_sequences, map(bare_text, split.train))
    counts = Counter(sequence for _, sequences in overlapping_texts for sequence in sequences)
    overlaps: list[tuple[float, str, str]] = []
    for text, sequences in overlapping_texts:
        best = _best_overlap(sequences, rare_sequences, counts, evaluated)
        if best is not None:
            overlaps.append((best[0], text, evaluated[best[1]][0]))
    overlaps.sort(key=lambda item: -item[0])
    return NearDuplicates(
        len(overlaps), [(text, evaluated_text) for _, text, evaluated_text in overlaps[:MAX_PAIRS]]
    )


def _shared(
    rare_sequences: Mapping[Sequence, list[int]], texts: Iterable[str | None]
) -> list[tuple[str, set[Sequence]]]:
    """The texts that hold a sequence of an evaluated prompt, with all of those."""
    rare_words = {word for sequence in rare_sequences for word in sequence}
    overlapping_texts = []
    for text in texts if rare_sequences else ():
        if text is not None:
            shared = {
                sequence
                for sequence in _sequences(_words(text), rare_words)
                if sequence in rare_sequences
            }
            if shared:
                overlapping_texts.append((text, shared))
    return overlapping_texts


def _best_overlap(
    sequences: set[Sequence],
    rare_sequences: Mapping[Sequence, list[int]],
    counts: Mapping[Sequence, int],
    evaluated: list[tuple[str, set[Sequence]]],
) -> tuple[float, int] | None:
    """The largest shared part of an evaluated prompt, and that prompt; None = only phrases are
    shared.
    """
    places = {holder_index for sequence in sequences for holder_index in rare_sequences[sequence]}
    best: tuple[float, int] | None = None
    for prompt_index in sorted(places):
        shared = sequences & evaluated[prompt_index][1]
        share = len(shared) / len(evaluated[prompt_index][1])
        # Training prompts that may hold a sequence before it counts as a phrase; 10 in that paper,
        # too Share of an evaluated prompt's sequences from which on a phrase counts as a copy
        is_copy = share >= 0.5 or any(counts[sequence] <= 10 for sequence in shared)
        if is_copy and (best is None or share > best[0]):
            best = (share, prompt_index)
    return best


def _words(text: str) -> list[str]:
    """Without signs, and so without the delimiters of formulas."""
    return _WORD.findall(
        (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()
    )


def _sequences(words: list[str], known_words: set[str] | None = None) -> Iterator[Sequence]:
    """All of a text; with `known_words` only those of known words."""
    run = 0
    for end, word in enumerate(words, start=1):
        run = run + 1 if known_words is None or word in known_words else 0
        if run >= NUM_WORDS:
            yield tuple(words[end - NUM_WORDS : end])


def _find_bare_texts(tasks: Tasks) -> Callable[[Prompt], str | None]:
    """The text of a prompt without the template of its data set; None = of a generated set."""
    datasets: list[Dataset] = [dataset_part.dataset for dataset_part in tasks.parts]
    datasets += [item.dataset for item in tasks.downstream]
    template_ends = {
        dataset.name: resolve_mapping(dataset).template.partition("{prompt}")[::2]
        for dataset in datasets
        if isinstance(dataset, RowsDataset)
    }

    def bare_text(prompt: Prompt) -> str | None:
        if prompt.dataset not in template_ends:
            return None
        template_start, template_end = template_ends[prompt.dataset]
        *earlier_texts, last = (message.content for message in prompt.messages)
        return "\n\n".join(
            [*earlier_texts, last.removeprefix(template_start).removesuffix(template_end)]
        )

    return bare_text


def _short(text: str) -> str:
    return shorten(" ".join(text.split()))
