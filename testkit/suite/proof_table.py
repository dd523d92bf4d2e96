"""The proofs of this repository, as `proof_table.yaml` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import yaml

from testkit.suite.proofs import Proof

_TABLE = yaml.load(
    Path(__file__).with_suffix(".yaml").read_text(), yaml.CSafeLoader
)  # a safe loader


def _paths(rooms: Sequence[str] = (), paths: Sequence[str] = ()) -> list[str]:
    return [*(f"services/rollcast/{room}" for room in rooms), *paths]


def _proof(
    name: str,
    protects: str,
    tests: Mapping[str, Sequence[str]],
    subjects: Sequence[str] = (),
    **own_paths: Sequence[str],
) -> Proof:
    shared_paths = chain.from_iterable(_paths(**_TABLE["subjects"][name]) for name in subjects)
    return Proof(
        name,
        protects,
        paths=(*shared_paths, *_paths(**own_paths)),
        tests=tuple(
            (Path("tests") / folder / f"test_{test}.py").as_posix()
            for folder, names in tests.items()
            for test in names
        ),
    )


PROOFS: tuple[Proof, ...] = tuple(_proof(**row) for row in _TABLE["proofs"])
