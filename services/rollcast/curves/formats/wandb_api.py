"""A run of W&B by its address, wandb:ENTITY/PROJECT/RUN, through W&B's own client if that is
installed.
"""

import re
from importlib.util import find_spec
from itertools import islice

from rollcast.config.errors import UserError
from rollcast.curves.formats.nested import flat
from rollcast.curves.sheet import MAX_ROWS, Sheet

NAME = "run of W&B"
PREFIX = "wandb:"
_ADDRESS = re.compile(r"[\w.-]+/[\w.-]+/[\w.-]+")


def read_run(source: str) -> Sheet:
    """The run's whole history. Raises UserError: no address, no client, or what W&B answers."""
    # The browser's address has /runs/ between the project and the run.
    address = source.removeprefix(PREFIX).removeprefix("//").replace("/runs/", "/")
    if not _ADDRESS.fullmatch(address):
        raise UserError(
            f"{source}: is not a run of W&B; write {PREFIX}ENTITY/PROJECT/RUN, as in its address"
        )
    if find_spec("wandb") is None:
        raise UserError(
            f"{source}: the package wandb is not installed; install it: pip install wandb"
        )
    import wandb

    try:
        # Seconds for one answer of the server
        history = wandb.Api(timeout=30).run(address).scan_history()
        rows = [flat(row) for row in islice(history, MAX_ROWS)]
    except Exception as error:  # the client raises errors of any type
        error_message = " ".join(str(error).split())[:200]
        raise UserError(
            f"{source}: W&B does not answer ({error_message}); check the address, or run `wandb "
            "login`"
        ) from None
    if not rows:
        raise UserError(f"{source}: has no history yet")
    return Sheet.from_rows(NAME, rows)
