"""PromQL's vector selectors, and nothing else of it: `name{label="value", other=~"a|b.*"}`.

Regular expressions are alternatives of literal text and the wildcards . .* and .+, which is what
dashboards write; a general one from a stranger could run without end.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

MAX_LENGTH = 4_000
_NAME = re.compile(r"\s*([a-zA-Z_:][a-zA-Z0-9_:]*)")
_MATCHER = re.compile(
    r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!~|!=|=)\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')\s*'
)
_WILDCARD = re.compile(r"\\.|(\.[*+])", re.DOTALL)
_LITERALS_AND_WILDCARDS = re.compile(r"(?:\\.|\.[*+]?|[^\\\[\](){}*+?^$.])*", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Matcher:
    label: str
    pattern: re.Pattern[str]
    is_equality: bool
    """Whether the label has to match, or must not."""


@dataclass(frozen=True)
class Selector:
    matchers: tuple[Matcher, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """`labels` with __name__ among them; an absent label counts as empty."""
        return all(
            bool(m.pattern.fullmatch(labels.get(m.label, ""))) == m.is_equality
            for m in self.matchers
        )


def parse_selector(text: str) -> Selector:
    """Raises ValueError: one sentence on why the text is not a selector."""
    if len(text) > MAX_LENGTH:
        raise ValueError(f"query is longer than {MAX_LENGTH} characters")
    matchers = []
    name = _NAME.match(text)
    position = name.end() if name else 0
    if name:
        matchers.append(Matcher("__name__", re.compile(re.escape(name[1])), True))
    rest = text[position:].strip()
    if rest:
        if not (rest.startswith("{") and rest.endswith("}")):
            raise ValueError(
                'only selectors such as rollcast_timeline_pass_rate{run="a"} are answered here'
            )
        inner = rest[1:-1]
        position = 0
        while inner[position:].strip():
            label_match = _MATCHER.match(inner, position)
            if not label_match:
                raise ValueError(
                    f"cannot read the label matchers at {inner[position : position + 40]!r}"
                )
            label, operator, quoted = label_match.groups()
            matchers.append(
                Matcher(
                    label, _pattern(_unquote(quoted), operator.endswith("~")), operator[0] == "="
                )
            )
            position = label_match.end()
            if inner[position:].strip():
                if inner[position] != ",":
                    raise ValueError(
                        f"a comma is missing before {inner[position : position + 40]!r}"
                    )
                position += 1
    if not matchers:
        raise ValueError("query is empty; give a selector")
    return Selector(tuple(matchers))


def _unquote(quoted: str) -> str:
    return _ESCAPED.sub(lambda escape: "\n" if escape[1] == "n" else escape[1], quoted[1:-1])


def _pattern(text: str, is_regex: bool) -> re.Pattern[str]:
    if not is_regex:
        return re.compile(re.escape(text))
    if text.startswith("(") and text.endswith(")") and "(" not in text[1:]:
        text = text[1:-1]
    if not _LITERALS_AND_WILDCARDS.fullmatch(text):
        raise ValueError(
            f"regular expression {text[:60]!r}: only text, |, .* and .+ are understood here"
        )
    max_wildcards = 4
    if len(list(filter(None, _WILDCARD.findall(text)))) > max_wildcards:
        raise ValueError(f"regular expression {text[:60]!r}: more than {max_wildcards} wildcards")
    # An escaped letter is that letter here, and no class of characters.
    return re.compile(_ESCAPED.sub(lambda escape: re.escape(escape[1]), text), re.DOTALL)
