"""Ways to write the same number or formula, brought to the one that math-verify reads.

４２, 𝟒𝟐 -> 42      − -> -      √2 -> \\sqrt{2}      2² -> 2^2      1½ -> 1\\frac{1}{2}
1.5e-3 -> 0.0015       0.1\\overline{6}, 0.1666... -> \\frac{1}{6}       1 000, 1\\,000 -> 1000
3. -> 3      \\textcolor{red}{5}, **5**, \\text{5} -> 5      90° -> 90^\\circ
"""

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction

MAX_EXPONENT = 400
"""Largest exponent of a number such as 1e400; larger ones stay as they are written."""
MAX_PERIOD_DIGITS = 60
_SIGNS = {
    "−": "-", "‐": "-", "‑": "-", "‒": "-", "–": "-", "﹣": "-", "×": r"\times ", "⋅": r"\cdot ",
    "·": r"\cdot ", "∙": r"\cdot ", "÷": r"\div ", "∕": "/", "⁄": "/", "√": r"\sqrt ",
    "∞": r"\infty ", "π": r"\pi ", "≤": r"\le ", "≦": r"\le ", "⩽": r"\le ", "≥": r"\ge ",
    "≧": r"\ge ", "⩾": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "∪": r"\cup ", "∩": r"\cap ",
    "∈": r"\in ", "∅": r"\emptyset ", "±": r"\pm ", "°": r"^\circ ", "º": r"^\circ ",
    "˚": r"^\circ ", "℃": r"^\circ C", "℉": r"^\circ F", "ℝ": r"\mathbb{R}", "…": "...", "。": ".",
    "∨": r"\lor ", "∧": r"\land ", "θ": r"\theta ", "α": r"\alpha ", "β": r"\beta ",
    "λ": r"\lambda ", "φ": r"\phi ",
}  # fmt: skip
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉", "0123456789", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_COMBINING_BAR = re.compile(r"(?:\d[\u0304\u0305])+")
_COMBINING_DOT = re.compile(r"(\d)\u0307")

_DOTS = r"(?:\.{3}|\\[lc]?dots(?![A-Za-z])|\\dotsc?(?![A-Za-z]))"
_NUMBER = r"(?<![\w.\\])(?P<whole>\d{0,30})\.(?P<fixed>\d{0,60}?)"
_BAR = re.compile(
    _NUMBER
    + r"\\(?:overline|bar|overbar|dot|widebar)\s*(?:\{\s*(?P<period>\d+)\s*\}|(?P<digit>\d))"
    + rf"(?:(?P<middle>\d*)\\dot\s*\{{?(?P<end>\d)\}}?)?\s*{_DOTS}?"
)
_IN_BRACKETS = re.compile(_NUMBER.replace("{0,60}?", "{0}") + r"\((?P<period>\d+)\)")
_WHOLE_IN_BRACKETS = re.compile(r"(?P<whole>\d{0,30})\.(?P<fixed>\d{0,60})\((?P<period>\d+)\)")
_GOES_ON = re.compile(rf"(?<![\w.\\])(?P<whole>\d{{0,30}})\.(?P<digits>\d{{3,120}})\s*{_DOTS}")
_REPEATED = re.compile(r"(?P<fixed>\d*?)(?P<period>\d+?)(?P=period){2,}")
_SCIENTIFIC = re.compile(
    r"(?<![\w.\\])(?P<digits>\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})"
    r"\s?(?:[eE]|\\(?:text|mathrm|rm)\s*\{\s*[eE]\s*\})\s?\{?(?P<exponent>[+-]?\d{1,3})\}?(?![\w}]|\.\d)"
)
_POWER_OF_TEN = re.compile(
    r"(?<![\w.\\}])(?P<digits>\d{1,60}(?:\.\d{1,60})?)\s*(?:\\times|\\cdot|\*)\s*10\s*"
    r"(?:\^\s*\{\s*(?P<exponent>[+-]?\d{1,3})\s*\}|\^\s*(?P<digit>\d)(?!\d)|\*\*\s*(?P<power>-?\d{1,3})(?!\d))"
)
_BINDS_TIGHTER = re.compile(r"(?:[\^_/!]|\\div)\s*$")
_BRACES = re.compile(r"(?<=\d)\{\.\}|\{(\\(?:overline|bar|dot)\s*(?:\{\d+\}|\d))\}")
_IDEOGRAPH_THEN_NUMBER = re.compile(r"(?<=[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af])(?=[-+\d$])")

_SPACE = r"(?:\\[,;:! ]|~|\s|\{,\}|\{\\,\})"
_SEPARATED = re.compile(rf"(?<![\d.,\w])(\d{{1,3}}(?:{_SPACE}{{1,3}}\d{{3}}){{1,8}})(?!\d)")
_DEGREES = re.compile(
    r"\\degree(?![A-Za-z])|(?<=\d)\s*\\deg(?![A-Za-z])|(?<=\d)\s*\^\s*\{?\s*(?:\\text\{o\}|\\mathrm\{o\}|o)\s*\}?(?![A-Za-z])"
)
_TEMPERATURE = re.compile(
    r"(\^\s*\{?\s*\\circ\s*\}?)\s*(?:\\(?:text|mathrm|rm|textrm)\s*\{\s*[CFK]\s*\}|[CFK](?![A-Za-z]))"
)
_FULL_STOP = re.compile(r"(?<=\d)\.(?=\s*(?:[,;)\]}&$]|\\|$))")
_COLOUR = re.compile(r"\\(?:textcolor|colorbox|color)\s*(?:\[\w+\])?\{[^{}]{0,40}\}")
_STYLE = re.compile(
    r"\\(?:boldsymbol|bm|pmb|underline|emph|mathstrut|displaystyle|textstyle|large|Large|huge|Huge|bf|mathbf(?=\s*\{\s*[-+\d.]))"
    r"(?![A-Za-z])\s*"
)
_NUMBER_IN_TEXT = re.compile(
    r"\\(?:text|textbf|textrm|mathrm|mbox|hbox)\s*\{\s*([-+]?[\d.,/]*\d\.?)\s*((?![^{}]*\bor\b)[^{}\d][^{}]*)?\}"
)
_LETTER_OF_NUMBER = re.compile(r"\\(?:mathrm|rm|text)\s*\{\s*([ei])\s*\}")
_END_OF_TEXT = re.compile(r"[.,;:]+\s*\}$")
_MIXED = re.compile(r"([-+]?\d+)\s+(\d+)\s*/\s*(\d+)")
_ENDS = re.compile(r"(?:\\[,;: ]|\\q?quad(?![A-Za-z])|\\\\|[\s.,;:~])+$")
_BRACKETS = {"lbrace": r"\{", "rbrace": r"\}", "langle": "(", "rangle": ")"}
_NAMED_BRACKET = re.compile(rf"\\({'|'.join(_BRACKETS)})(?![A-Za-z])")
_NOT_EQUAL = re.compile(r"\\not\s*\{?=\}?|=/=|^\s*\\(?:not|neg|lnot)(?![A-Za-z=])(?!\s*[\\=])")
_STARTS = re.compile(r"^(?:\\[,;:! ]|\\q?quad(?![A-Za-z])|[\s~])+")


def plain_signs(text: str) -> str:
    """Digits and signs of other alphabets as ASCII or LaTeX; repeating decimals and powers of ten
    as exact numbers.
    """
    if not text.isascii():
        text = _COMBINING_BAR.sub(
            lambda bar_match: rf"\overline{{{re.sub(r'[^0-9]', '', bar_match[0])}}}", text
        )
        text = _COMBINING_DOT.sub(r"\\dot{\1}", text)
        text = _RAISED.sub(
            lambda match: _power("^", "".join(_SUPERSCRIPTS[sign] for sign in match[0])),
            text,
        )
        text = _LOWERED.sub(
            lambda match: _power("_", "".join(_SUBSCRIPTS[sign] for sign in match[0])),
            text,
        )
        text = _IDEOGRAPH_THEN_NUMBER.sub(" ", "".join(map(_sign, text)))
    text = _BRACES.sub(lambda brace_match: brace_match[1] or ".", _NOT_EQUAL.sub(r"\\ne ", text))
    text = _BAR.sub(_repeating, text)
    text = _IN_BRACKETS.sub(_repeating, text)
    text = _GOES_ON.sub(_going_on, text)
    return _POWER_OF_TEN.sub(_power_of_ten, _SCIENTIFIC.sub(_scientific, text))


def formula(text: str) -> str:
    """One formula, the content of a box or a reference: without style, spacing and punctuation."""
    text = _STYLE.sub("", _COLOUR.sub("", plain_signs(text)))
    text = _NAMED_BRACKET.sub(lambda bracket_match: _BRACKETS[bracket_match[1]], text)
    text = _trim(text)
    while text.startswith("**") and text.endswith("**") and len(text) > 4:
        text = _trim(text[2:-2])
    text = _LETTER_OF_NUMBER.sub(r" \1 ", _END_OF_TEXT.sub("}", text))
    text = _NUMBER_IN_TEXT.sub(
        lambda text_match: (
            text_match[1].rstrip(".,") + (rf"\text{{ {text_match[2]}}}" if text_match[2] else "")
        ),
        text,
    )
    text = _TEMPERATURE.sub(r"\1", _DEGREES.sub(lambda _: r"^\circ ", text))
    text = _SEPARATED.sub(lambda number_match: re.sub(_SPACE, "", number_match[1]), text)
    text = _FULL_STOP.sub("", text)
    if mixed := _MIXED.fullmatch(text):
        text = rf"{mixed[1]}\frac{{{mixed[2]}}}{{{mixed[3]}}}"
    if decimal_match := _WHOLE_IN_BRACKETS.fullmatch(text):
        text = _repeating(decimal_match)
    return _trim(text).replace("~", " ")


def _trim(text: str) -> str:
    text_without_end = _ENDS.sub("", text)
    if len(text_without_end) < len(text) and text_without_end.endswith(
        "\\"
    ):  # `\ ` and `\.` are one sign each
        text_without_end = text_without_end[:-1]
    return _STARTS.sub("", text_without_end)


def _power(sign: str, content: str) -> str:
    return sign + content if len(content) == 1 else f"{sign}{{{content}}}"


def _sign(character: str) -> str:
    if character.isascii():
        return character
    if character in _SIGNS:
        return _SIGNS[character]
    if "\uff01" <= character <= "\uff5e":  # full width
        return chr(ord(character) - 0xFEE0)
    if character.isspace():
        return " " if character != "\u2028" else "\n"
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    if unicodedata.category(character) == "No" and "\u2044" in (
        parts := unicodedata.normalize("NFKC", character)
    ):
        numerator, _, denominator = parts.partition("\u2044")
        return rf"\frac{{{numerator}}}{{{denominator}}}"
    if "\U0001d400" <= character <= "\U0001d7ff":  # letters of formulas
        return unicodedata.normalize("NFKC", character)
    return character


def _repeating(decimal_match: re.Match[str]) -> str:
    """A decimal whose period is marked, as a fraction."""
    parts = decimal_match.groupdict()
    period = parts["period"] or parts["digit"]
    if parts.get("end"):
        period += (parts["middle"] or "") + parts["end"]
    if len(period) > MAX_PERIOD_DIGITS:
        return decimal_match[0]
    return _fraction(parts["whole"], parts["fixed"], period)


def _going_on(decimal_match: re.Match[str]) -> str:
    """0.1666... as a fraction; digits that do not come three times in a row say nothing about those
    that follow.
    """
    repeated = _REPEATED.fullmatch(decimal_match["digits"])
    if repeated is None or len(repeated["period"]) > MAX_PERIOD_DIGITS:
        return decimal_match[0]
    return _fraction(decimal_match["whole"], repeated["fixed"], repeated["period"])


def _fraction(whole_digits: str, fixed_digits: str, period_digits: str) -> str:
    value = Fraction(int(f"{whole_digits}{fixed_digits}" or "0"), 10 ** len(fixed_digits))
    value += Fraction(int(period_digits), (10 ** len(period_digits) - 1) * 10 ** len(fixed_digits))
    return _format_fraction(value)


def _scientific(number_match: re.Match[str]) -> str:
    exponent = int(number_match["exponent"])
    if abs(exponent) > MAX_EXPONENT:
        return number_match[0]
    return _shift_decimal(number_match["digits"], exponent)


def _power_of_ten(power_match: re.Match[str]) -> str:
    exponent = int(power_match["exponent"] or power_match["digit"] or power_match["power"])
    preceding_text = power_match.string[max(0, power_match.start() - 8) : power_match.start()]
    if abs(exponent) > MAX_EXPONENT or _BINDS_TIGHTER.search(preceding_text):
        return power_match[0]
    return _shift_decimal(power_match["digits"], exponent)


def _shift_decimal(digits: str, exponent: int) -> str:
    """digits * 10^exponent with every digit written: it stays a decimal, which equals others only
    by its value.
    """
    _, figures, own_exponent = Decimal(digits).as_tuple()
    text = format(Decimal((0, figures, int(own_exponent) + exponent)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _format_fraction(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
