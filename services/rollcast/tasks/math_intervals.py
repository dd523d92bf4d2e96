"""Inequalities as sets: `-2 \\le x < 5` is `[-2,5)`, `x < 1 or x > 2` is
`(-\\infty,1)\\cup(2,\\infty)`.
"""

import re
from dataclasses import dataclass

_RELATION = re.compile(
    r"\\(?:leqslant|geqslant|leqq|geqq|leq|geq|le|ge|lt|gt|neq|ne)(?![A-Za-z])|<=|>=|!=|<|>|=|\\in(?![A-Za-z])"
)
_SIGNS = {
    "\\leqslant": "<=", "\\leqq": "<=", "\\leq": "<=", "\\le": "<=", "\\geqslant": ">=",
    "\\geqq": ">=", "\\geq": ">=", "\\ge": ">=", "\\lt": "<", "\\gt": ">", "\\neq": "!=",
    "\\ne": "!=",
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "=": "="}
_VARIABLE = re.compile(r"[A-Za-z](?:_\{?\w{1,3}\}?)?|\\(?:theta|alpha|beta|lambda|phi|mu)")
_WORD = r"(?:\\(?:text|mathrm|textrm|mbox)\s*\{{\s*{0}\s*\}}|(?<![A-Za-z\\]){0}(?![A-Za-z]){1})"
_OR = re.compile(_WORD.format("or", r"|\\lor(?![A-Za-z])|\\vee(?![A-Za-z])"))
_AND = re.compile(_WORD.format("and", r"|\\land(?![A-Za-z])|\\wedge(?![A-Za-z])"))
_NOISE = re.compile(
    r"\\(?:left|right|bigl?|bigr?|Bigl?|Bigr?)(?![A-Za-z])|\\q?quad(?![A-Za-z])|\\[,;:! ]|~|\$"
)
_BUILDER = re.compile(
    r"\\\{\s*(?P<variable>[A-Za-z])\s*(?:\\in\s*(?:\\mathbb\s*\{?R\}?|\\R(?![A-Za-z]))\s*)?"
    r"(?:\\mid(?![A-Za-z])|\\vert(?![A-Za-z])|\||:)(?P<condition>.+)\\\}"
)
_OUTWARD = re.compile(r"(?P<open>[\[\](])(?P<ends>[^\[\]()]+,[^\[\]()]+)(?P<close>[\[\])])")
_INTERVAL = re.compile(r"[\[(][^,]+,[^,]+[)\]]")
_REALS = re.compile(
    r"\\mathbb\s*\{?\s*R\s*\}?|\\R(?![A-Za-z])|\\text\{all real numbers\}|all real numbers"
)


@dataclass(frozen=True, slots=True)
class RealSet:
    latex: str
    """Intervals and points, joined by `\\cup`."""
    variable: str | None
    """The variable said to be in it; None = the set alone is written."""

    def may_equal(self, other_set: "RealSet") -> bool:
        """Whether both can mean one answer: `x < 3` is not `y < 3`."""
        return (
            self.variable is None
            or other_set.variable is None
            or self.variable == other_set.variable
        )


def real_set(latex: str) -> RealSet | None:
    """The set that a set, an inequality or several joined by `or` and `and` describe; None for
    anything else.
    """
    text = _NOISE.sub(" ", latex).strip()
    # Characters of a set or inequality that is looked at
    if len(text) > 300:
        return None
    if builder := _BUILDER.fullmatch(text):
        inner = _parse_alternatives(builder["condition"].strip())
        return (
            RealSet(inner.latex, None) if inner and inner.variable == builder["variable"] else None
        )
    if _REALS.fullmatch(text):
        return RealSet(r"(-\infty,\infty)", None)
    if outward := _OUTWARD.fullmatch(text):
        opening = "(" if outward["open"] in "](" else "["
        closing = ")" if outward["close"] in "[)" else "]"
        return RealSet(f"{opening}{outward['ends']}{closing}", None)
    if "\\cup" in text and not _RELATION.search(text):
        return RealSet(text, None)
    return _parse_alternatives(text)


def _parse_alternatives(text: str) -> RealSet | None:
    alternatives = _OR.split(text)
    # Intervals of a union; a longer one is no answer
    if len(alternatives) > 8:
        return None
    parsed_sets = [_parse_conjunction(alternative.strip(" ,")) for alternative in alternatives]
    variables = {parsed_set.variable for parsed_set in parsed_sets if parsed_set is not None} - {
        None
    }
    if None in parsed_sets or len(variables) > 1:
        return None
    return RealSet(
        r"\cup ".join(member_set.latex for member_set in parsed_sets if member_set is not None),
        next(iter(variables), None),
    )


def _parse_conjunction(text: str) -> RealSet | None:
    """An interval, or what one chain, or two joined by `and`, leave for one variable."""
    if _INTERVAL.fullmatch(text):
        return RealSet(text, None)
    bounds = [_chain(condition.strip(" ,")) for condition in _AND.split(text)]
    if None in bounds or len({variable for variable, _ in filter(None, bounds)}) != 1:
        return None
    relations = [relation for _, chain in filter(None, bounds) for relation in chain]
    variable = next(variable for variable, _ in filter(None, bounds))
    latex = _make_interval(relations)
    return None if latex is None else RealSet(latex, variable)


def _chain(text: str) -> tuple[str, list[tuple[str, str]]] | None:
    """`a < x <= b` as x and its relations, (`>`, a) and (`<=`, b); None if it is no such chain."""
    signs = [_SIGNS.get(sign, sign) for sign in _RELATION.findall(text)]
    terms = [term.strip() for term in _RELATION.split(text)]
    if len(signs) == 1 and _VARIABLE.fullmatch(terms[0]) and terms[1]:
        variable = terms[0]
        relations = [(signs[0], terms[1])]
    elif len(signs) == 1 and _VARIABLE.fullmatch(terms[1]) and terms[0] and signs[0] in _FLIPPED:
        variable = terms[1]
        relations = [(_FLIPPED[signs[0]], terms[0])]
    elif (
        len(signs) == 2
        and _VARIABLE.fullmatch(terms[1])
        and terms[0]
        and terms[2]
        and {sign[0] for sign in signs} in ({"<"}, {">"})
    ):
        variable = terms[1]
        relations = [(_FLIPPED[signs[0]], terms[0]), (signs[1], terms[2])]
    else:
        return None
    bare = re.sub(r"\\[A-Za-z]+", "", " ".join(term for _, term in relations))
    return (
        None
        if re.search(rf"(?<![A-Za-z]){re.escape(variable)}(?![A-Za-z])", bare)
        else (variable, relations)
    )


def _make_interval(relations: list[tuple[str, str]]) -> str | None:
    """The interval of one lower and one upper bound at most, or the one point, set, or line without
    a point.
    """
    if len(relations) == 1 and relations[0][0] in ("=", "!=", "\\in"):
        sign, term = relations[0]
        if sign == "=":
            return rf"\{{{term}\}}"
        if sign == "!=":
            return None if "," in term else rf"(-\infty,{term})\cup ({term},\infty)"
        member_set = real_set(term)
        return member_set.latex if member_set else term
    lower = [pair for pair in relations if pair[0] in (">", ">=")]
    upper = [pair for pair in relations if pair[0] in ("<", "<=")]
    if len(lower) > 1 or len(upper) > 1 or len(lower) + len(upper) != len(relations):
        return None
    if any("," in term for _, term in relations):
        return None
    left_end = "(-\\infty" if not lower else ("[" if lower[0][0] == ">=" else "(") + lower[0][1]
    right_end = "\\infty)" if not upper else upper[0][1] + ("]" if upper[0][0] == "<=" else ")")
    return f"{left_end},{right_end}"
