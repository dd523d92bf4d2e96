"""Learns the stack from a folder of real curves, once from all and once without each repository.

    python -m benchmarks.world_prior --curves FOLDER --out FOLDER

Each curve is cut at ten shares of its compute and the law is fitted to every beginning.
`testkit/forecast/stack_learning.py` finds the stack (`scaling/posterior/stack.py`) under which the
later readings are likeliest. REPOSITORY.json (slash as __) is learned from all other repositories,
for `rollcast fit --prior` and `rollcast backtest --corpus FOLDER --priors OUT`; learned.json from
all of them. The prior of the law itself is not learned here: it stays as
`scaling/posterior/prior.py` has it.

Families of three curves or more of one repository, metric and task teach the prior of sweeps
(`testkit/forecast/sweep_learning.py`), for `rollcast sweep decide`; without such a family in two
repositories the files hold none.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testkit.forecast.stack_examples import Examples
    from testkit.forecast.sweep_learning import Family

OF_ALL = "learned.json"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.world_prior", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument(
        "--curves", type=Path, required=True, help="folder with index.csv and NAME.csv"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder for the files")
    arguments = parser.parse_args()

    from rollcast.cli.corpus.curves import read_corpus
    from rollcast.config.errors import UserError
    from testkit.forecast.stack_examples import make_examples
    from testkit.forecast.sweep_learning import make_families

    try:
        examples = make_examples(arguments.curves)
        families = make_families(read_corpus(arguments.curves))
    except UserError as error:
        parser.error(f"--curves: {error}")
    repositories = sorted(set(examples.repository.tolist()))
    if len(repositories) < 2:
        parser.error(f"--curves: examples of {len(repositories)} repositories; two are needed")
    print(f"{examples.outcome.size} examples of {len(repositories)} repositories", flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    of_families = {family.repository for family in families}
    with ProcessPoolExecutor() as pool:
        left_out = [None, *sorted(of_families)]
        sweeps = dict(
            zip(left_out, pool.map(partial(_learn_sweeps, families), left_out), strict=True)
        )
        write = partial(_write, arguments.out, examples, sweeps)
        for told in pool.map(write, [None, *repositories]):
            print(told, flush=True)
    return 0


def _learn_sweeps(families: list[Family], left_out: str | None) -> dict[str, float] | None:
    """The prior of sweeps without one repository; None from fewer than two others."""
    from testkit.forecast.sweep_learning import learn_sweep_prior

    others = [family for family in families if family.repository != left_out]
    is_enough = len({family.repository for family in others}) >= 2
    return asdict(learn_sweep_prior(others)) if is_enough else None


def _write(
    folder: Path,
    examples: Examples,
    sweeps: dict[str | None, dict[str, float] | None],
    left_out: str | None,
) -> str:
    """Learn without one repository, write the file, and return a sentence on it.

    A repository without a family has no part in any of `sweeps`.
    """
    from testkit.forecast.stack_learning import learn

    others = examples.repository != left_out
    stack = asdict(learn(examples.select(others)))
    origin = {
        "made_by": "benchmarks.world_prior",
        "left_out": left_out,
        "repositories": len(set(examples.repository[others].tolist())),
        "examples": int(others.sum()),
    }
    name = OF_ALL if left_out is None else f"{left_out.replace('/', '__')}.json"
    learned: dict[str, Any] = {"prior": {"stack": stack}}
    if (sweep := sweeps.get(left_out, sweeps[None])) is not None:
        learned["sweep"] = sweep
    (folder / name).write_text(json.dumps({**origin, **learned}, indent=1) + "\n")
    return f"{name}: {stack}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
