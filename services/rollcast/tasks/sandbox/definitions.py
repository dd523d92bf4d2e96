"""What a piece of Python defines, needs from elsewhere, and does when it is run: read from its
syntax tree alone.
"""

import ast
import builtins
import symtable
from collections.abc import Collection, Iterator

_BUILTIN = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__"}
_READERS = frozenset({"input", "raw_input", "stdin", "fileinput"})
"""Names with which a program reads its standard input; `open(0)` and `os.read(0, n)` besides."""
_COMPOUND = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Definitions:
    """One module's."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        """Raises SyntaxError or RecursionError if it can be parsed and not compiled."""
        self._source = source
        self._statements = tree.body
        self.defined = {
            name
            for statement in tree.body
            if not _is_stub(statement)
            for name in bound_names(statement)
        }
        """Module-level names, and the methods of a class `Solution`. A function without a body
        defines nothing."""
        self.imported = {
            name
            for statement in tree.body
            if isinstance(statement, ast.Import | ast.ImportFrom)
            for name in bound_names(statement)
        }
        """Names of `defined` that only an import binds: a test that imports the solution does not
        define it."""
        self.needed = undefined_names(source)
        """Global names that it reads and does not bind."""
        self._bodies = {
            statement.name: statement for statement in tree.body if isinstance(statement, _COMPOUND)
        }

    def does_something(self) -> bool:
        """Whether running it does more than to define names or to state a value, as sample output
        would.
        """
        return any(
            isinstance(node, ast.Call)
            for statement in self._actions()
            for node in ast.walk(statement)
        )

    def converses(self, helpers: "Collection[Definitions]" = ()) -> bool:
        """Whether running it after `helpers` reads standard input and prints, at its top level or
        in functions that it calls."""
        nodes = self._run_nodes(helpers)
        return any(map(_reads, nodes)) and any(map(_prints, nodes))

    def reads_input(self) -> bool:
        """Whether running it reads standard input."""
        return any(map(_reads, self._run_nodes(())))

    def without_demonstration(self) -> str:
        """Its source for use by other code: no printing, no assertions, no main block."""
        statements = [
            statement for statement in self._statements if not _is_demonstration(statement)
        ]
        try:
            return ast.unparse(ast.Module(statements, []))
        except RecursionError:
            return self._source

    def _run_nodes(self, helpers: "Collection[Definitions]") -> list[ast.AST]:
        """The syntax that may be run: top-level statements, and bodies of functions and classes
        that they name.
        """
        modules = [*helpers, self]
        bodies = {name: body for module in modules for name, body in module._bodies.items()}
        waiting: list[ast.AST] = [
            statement for module in modules for statement in module._actions()
        ]
        nodes: list[ast.AST] = []
        while waiting:
            for node in ast.walk(waiting.pop()):
                nodes.append(node)
                if isinstance(node, ast.Name) and node.id in bodies:
                    waiting.append(bodies.pop(node.id))
        return nodes

    def _actions(self) -> Iterator[ast.stmt]:
        """Statements that do something when the module is run, rather than to define a function or
        class.
        """
        return (statement for statement in self._statements if not isinstance(statement, _COMPOUND))


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Names of the module that a statement binds; of a class `Solution` its methods as well."""
    if isinstance(statement, ast.ClassDef) and statement.name == "Solution":
        yield from (
            name
            for member in statement.body
            if not _is_stub(member)
            for name in bound_names(member)
        )
    if isinstance(statement, _COMPOUND):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name).partition(".")[0] for alias in statement.names)
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
            elif isinstance(node, _COMPOUND):
                yield node.name


def _is_stub(statement: ast.stmt) -> bool:
    """A function with only a docstring or placeholder."""
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return all(
        isinstance(body_statement, ast.Pass | ast.Raise)
        or (isinstance(body_statement, ast.Expr) and isinstance(body_statement.value, ast.Constant))
        for body_statement in statement.body
    )


def _is_demonstration(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assert):
        return True
    if isinstance(statement, ast.If):
        return any(
            isinstance(node, ast.Name) and node.id == "__name__"
            for node in ast.walk(statement.test)
        )
    if isinstance(statement, ast.Expr):
        called = statement.value.func if isinstance(statement.value, ast.Call) else None
        return not (isinstance(called, ast.Attribute))
    return False


def _reads(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in _READERS and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return node.attr == "stdin" and isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Call) and node.args:
        called = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        first = node.args[0]
        return (
            called in ("open", "read")
            and isinstance(first, ast.Constant)
            and first.value in (0, "/dev/stdin")
        )
    return False


def _prints(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in ("print", "stdout")
    return isinstance(node, ast.Attribute) and node.attr in ("stdout", "write", "writelines")


def undefined_names(source: str) -> set[str]:
    """Global names that it reads and does not bind, apart from Python's own.

    Raises SyntaxError or RecursionError if it cannot be compiled.
    """
    module = symtable.symtable(source, "<program>", "exec")
    scopes = [module]
    read_names = set()
    assigned_names = set(_BUILTIN)
    while scopes:
        scope = scopes.pop()
        scopes += scope.get_children()
        for symbol in scope.get_symbols():
            if scope is module or symbol.is_global():
                if symbol.is_assigned() or symbol.is_imported():
                    assigned_names.add(symbol.get_name())
                if symbol.is_referenced():
                    read_names.add(symbol.get_name())
    return read_names - assigned_names
