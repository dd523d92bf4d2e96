"""Names that leave their content open: bare words among variables and parameters, functions without
verb or noun.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lab.plainness.density import FUNCTIONS, Module
from lab.plainness.idiom import docstrings

_BARE = """found one own said told most least given asked wanted known taken made kept left
begun written here before after behind each others other those what why whole part place it they
both these same now of then answered held shown read sent seen ended failed missing far near who
mine theirs ours its thing things some any"""
BARE_WORDS = frozenset(_BARE.split())
"""Words that do not say what a variable holds."""
_IRREGULAR = """begun made kept told said found given taken written held shown sent seen left
built drawn known lost met paid spent gone done"""
IRREGULAR_PARTICIPLES = frozenset(_IRREGULAR.split())
NO_PARTICIPLES = frozenset(("speed", "feed", "need", "seed", "shared", "embed"))
MIN_PARTICIPLE_LETTERS = 5
PRONOUNS = frozenset(("It", "Its", "They", "Their", "Those", "That", "These"))


def variables(module: Module) -> list[str]:
    """Every name that is assigned, fields of classes included."""
    stored = (
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return [node.id for node in stored]


def parameters(module: Module) -> list[str]:
    """Names of the parameters of every function."""
    return [parameter.arg for parameter in ast.walk(module.tree) if isinstance(parameter, ast.arg)]


def attributes(module: Module) -> list[str]:
    """Every attribute of `self` that is assigned, without its underscore."""
    return [
        node.attr.strip("_")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ]


def is_bare(name: str) -> bool:
    return name in BARE_WORDS


def participles(module: Module) -> list[str]:
    """Functions whose whole name is a past participle, properties aside."""
    return [
        function.name
        for function in _functions(module)
        if _is_participle(function) and not _is_property(function)
    ]


def prepositions(module: Module) -> list[str]:
    """Functions that begin with `of_` or end in `_of`."""
    names = [function.name for function in _functions(module)]
    return [
        name
        for name in names
        if name.strip("_").startswith("of_") or name.endswith("_of") or name == "of"
    ]


def pronoun_docstrings(module: Module) -> list[str]:
    """Docstrings that begin with a pronoun."""
    return _beginning_with(module, PRONOUNS)


def what_docstrings(module: Module) -> list[str]:
    """Docstrings that begin with What."""
    return _beginning_with(module, frozenset(("What",)))


def _beginning_with(module: Module, words: frozenset[str]) -> list[str]:
    texts = [str(docstring.value).strip() for docstring in docstrings(module.tree)]
    return [text for text in texts if text and text.split()[0].strip(",.'’") in words]


def _functions(module: Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(module.tree) if isinstance(node, FUNCTIONS))


def _is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(
        isinstance(name, ast.Name) and name.id == "property" for name in function.decorator_list
    )


def _is_participle(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    word = function.name.strip("_")
    is_regular = (
        word.endswith("ed") and len(word) >= MIN_PARTICIPLE_LETTERS and word not in NO_PARTICIPLES
    )
    return "_" not in word and (is_regular or word in IRREGULAR_PARTICIPLES)
