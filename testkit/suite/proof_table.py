"""The proofs of this repository."""

from __future__ import annotations

from testkit.suite.proofs import Proof

PROOFS: tuple[Proof, ...] = ()
