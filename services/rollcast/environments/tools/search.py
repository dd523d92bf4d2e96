"""The tool `search`: BM25 over a corpus that is read once,
when the environment's process is made.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rollcast.config.errors import UserError

NUM_RESULTS = 5
"""Passages of one answer. Five fit into the answer's usual bound with some hundred words each."""


@dataclass(frozen=True, slots=True)
class Passage:
    text: str
    title: str = ""

    @property
    def searched(self) -> str:
        return f"{self.title}\n{self.text}"


def search_over(corpus: Path) -> Callable[[str], str]:
    """The tool `search` over a JSONL file.

    Raises UserError if it cannot be read, or `bm25s` is not installed.
    """
    try:
        import bm25s
    except ImportError:
        raise UserError(
            "the tool search needs the package bm25s, which is not installed; pip install "
            "'rollcast[tools]'"
        ) from None
    passages = list(read_corpus(corpus))
    index = bm25s.BM25(backend="numpy")
    index.index(_tokens(bm25s, [passage.searched for passage in passages]), show_progress=False)

    def search(query: str) -> str:
        """Search a collection of texts.

        Args:
            query: Words that the wanted texts contain.

        Returns:
            The texts that match best, the best one first.
        """
        # A longer query is cut
        tokens = _tokens(bm25s, [query[:1_000]])
        if not tokens[0] or not any(token in index.vocab_dict for token in tokens[0]):
            return "Nothing was found: no text contains these words."
        num_results = min(NUM_RESULTS, len(passages))
        passage_numbers, scores = index.retrieve(
            tokens, k=num_results, backend_selection="numpy", show_progress=False
        )
        best = [
            passages[number]
            for number, score in zip(passage_numbers[0], scores[0], strict=True)
            if score > 0
        ]
        return (
            "\n\n".join(map(_format_passage, range(1, len(best) + 1), best)) or "Nothing was found."
        )

    return search


def read_corpus(corpus: Path) -> Iterator[Passage]:
    """The passages of a JSONL file, one object with `text` (and `title`) a line.

    Raises UserError naming the line.
    """
    number = 0
    try:
        with corpus.open("rb") as file:
            # Longest line of a corpus: a longer one is no passage
            while line := file.readline(16 << 20):
                number += 1
                if line.strip():
                    yield _passage(json.loads(line))
    except OSError as error:
        raise UserError(
            f"corpus {corpus}: cannot be read ({error.strerror}); correct the path"
        ) from None
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UserError(
            f"corpus {corpus}, line {number}: needs a JSON object with a field `text`, and `title` "
            "if it has one"
        ) from None
    if number == 0:
        raise UserError(f"corpus {corpus}: is empty; give a file with one JSON object a line")


def _passage(row: dict[str, Any]) -> Passage:
    """Raises TypeError and KeyError if it is not one."""
    text = row["text"]
    title = row.get("title") or ""
    if not isinstance(text, str) or not isinstance(title, str):
        raise TypeError
    return Passage(text, title)


def _tokens(bm25s: Any, texts: list[str]) -> list[list[str]]:
    """Lower-case words, without the stop words of English."""
    token_lists: list[list[str]] = bm25s.tokenize(texts, return_ids=False, show_progress=False)
    return token_lists


def _format_passage(rank: int, passage: Passage) -> str:
    # A longer passage is cut
    text = passage.text[:1_500]
    more = " [...]" if len(passage.text) > len(text) else ""
    title = f"{passage.title}\n" if passage.title else ""
    return f"[{rank}] {title}{text}{more}"
