"""`python -m rollcast.trainer.export_checkpoint --config FILE --checkpoint PLACE --folder FOLDER`:
the model of a checkpoint, as a run exports it at its end.

Weights alone are read, in float32, on this machine's processors: a run may be using its GPUs.
"""

import argparse
import sys
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.out_of_memory import told_what_did_not_fit
from rollcast.config.run import load_run_config
from rollcast.config.services import Trainer
from rollcast.runfolder.files import Place, parse_location
from rollcast.telemetry.heavy_imports import pause_garbage_collection
from rollcast.telemetry.logging import configure_logging
from rollcast.telemetry.process_end import end

with pause_garbage_collection():
    from rollcast.trainer.learner.adapter_export import make_export
    from rollcast.trainer.learner.build import build_learner
    from rollcast.trainer.learner.checkpoint import load_weights
    from rollcast.trainer.learner.ranks import Ranks, join_configured_ranks


def export_checkpoint(run_file: Path, checkpoint: Place, folder: Path, ranks: Ranks) -> None:
    """Write the checkpoint's weights as a Hugging Face folder, adapters as PEFT's. `ranks`: one.

    Raises UserError if they cannot be read, do not fit, or the folder cannot be written.
    """
    config = load_run_config(run_file)
    # What an update alone needs is not read: a reference policy, a teacher.
    recipe = config.recipe.model_copy(update={"kl": None, "distillation": None})
    learner = build_learner(config.model, recipe, Trainer(), ranks, seed=config.seed)
    load_weights(checkpoint, learner)
    with told_what_did_not_fit("a weight of the export", "export on a machine with more memory"):
        make_export(
            learner.policy, config.model, folder, custom_functions=config.recipe.custom_functions
        ).write()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.trainer.export_checkpoint",
        description="Writes the model of a checkpoint.",
    )
    parser.add_argument("--config", type=Path, required=True, help="run file, resolved")
    parser.add_argument("--checkpoint", required=True, help="its folder, or URL")
    parser.add_argument("--folder", type=Path, required=True, help="of the model")
    arguments = parser.parse_args()
    configure_logging("export")
    try:
        ranks = join_configured_ranks(Trainer())
        try:
            export_checkpoint(
                arguments.config, parse_location(arguments.checkpoint), arguments.folder, ranks
            )
        finally:
            ranks.leave()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    end(main())
