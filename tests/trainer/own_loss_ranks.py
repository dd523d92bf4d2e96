"""Run as a process: one rank of two whose recipe has a loss that raises on rank 1 alone. Both must
end.

    python -m tests.trainer.own_loss_ranks MODEL RUN_FOLDER FUNCTION

torchrun's environment variables name the rank.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rollcast.config.errors import UserError
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import join_ranks
from tests.trainer.tiny_models import make_config, make_sequences


def main() -> None:
    model, run_folder, function = sys.argv[1:]
    ranks = join_ranks(timeout_seconds=60, threads=1)
    recipe = {"loss": {"kind": "python", "function": function}}
    group = LearnerGroup.build(make_config(Path(model), Path(run_folder), recipe=recipe), ranks)
    if ranks.rank > 0:
        with pytest.raises(
            UserError, match=r"^recipe.loss .*: RuntimeError: on one rank alone \(.*line 20\)$"
        ):
            group.follow()
    else:
        with pytest.raises(RuntimeError):  # of a collective without the other rank
            group.update(make_sequences(1))
    ranks.leave()
    sys.stdout.flush()
    os._exit(0)  # a group whose collective failed does not survive the interpreter's own end


if __name__ == "__main__":
    main()
