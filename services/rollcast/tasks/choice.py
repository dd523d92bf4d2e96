"""The verifiers that one run may use, by the names that its run file gives them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from rollcast.config.errors import UserError
from rollcast.config.tasks import Tasks
from rollcast.config.verifiers import FunctionVerifier, VerifierSettings
from rollcast.tasks import own_functions
from rollcast.tasks.prompts import verifier_names
from rollcast.tasks.verifiers import Verifier, VerifierFunction, find_verifier, is_built_in


class Verifiers:
    """Those that are built in, that the run file declares or names, and that installed packages add.

    A name that comes over a wire may say where code is: only those of the run file are followed.
    """

    def __init__(self, declared: Sequence[VerifierSettings] = (), named: Collection[str] = ()) -> None:
        self.declared = {one.name: one for one in declared if not is_built_in(one.name)}
        self._named = frozenset(named)

    @classmethod
    def of(cls, tasks: Tasks) -> Verifiers:
        return cls(tasks.verifiers, verifier_names(tasks))

    def find(self, name: str) -> Verifier:
        """The verifier of that name. Raises UserError if the run file names no such verifier and none is installed."""
        settings = self.declared.get(name)
        if isinstance(settings, FunctionVerifier):
            return replace(find_verifier(settings.code), place="process" if settings.trusted else "sandbox")
        if settings is not None:
            return Verifier(_asked, "remote", name)
        if own_functions.is_function(name) and name not in self._named:
            raise UserError(f"verifier {name[:100]!r}: no data set of the run file names it; name it there")
        return find_verifier(name)


def _asked() -> VerifierFunction:
    raise AssertionError("a service is asked by rollcast.tasks.remote")
