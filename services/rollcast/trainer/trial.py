"""`python -m rollcast.trainer.trial --config FILE --trial FILE --out FILE`: one update of the
trainer, timed.

Of the model's own weights on this machine's ranks, in the lengths that `rollcast.generator.trial`
sampled. The text is made up: how long a forward and a backward pass take depends on lengths alone.
Nothing is kept.
"""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.config.out_of_memory import told_what_did_not_fit
from rollcast.config.recipe import Recipe
from rollcast.config.run import load_run_config
from rollcast.config.services import Trainer
from rollcast.runfolder.records import read_record
from rollcast.runfolder.trial_records import TrialRecord, TriedCompletion, UpdateTrialRecord
from rollcast.runfolder.writing import replace_json
from rollcast.telemetry.heavy_imports import pause_garbage_collection
from rollcast.telemetry.logging import configure_logging
from rollcast.telemetry.process_end import end
from rollcast.trainer.allocator import use_expandable_segments

if __name__ == "__main__":
    use_expandable_segments(os.environ)  # before torch is imported

with pause_garbage_collection():
    from rollcast.trainer.learner.batch import TrainingSequence, denominator, plan_micro_batches
    from rollcast.trainer.learner.build import build_learner
    from rollcast.trainer.learner.ranks import Ranks, join_configured_ranks


def time_update(
    model: Model, recipe: Recipe, trainer: Trainer, ranks: Ranks, tried: Sequence[TriedCompletion]
) -> UpdateTrialRecord:
    """Collective: all ranks pass the same.

    Raises UserError if the model cannot be read, or does not fit.
    """
    learner = build_learner(model, recipe, trainer, ranks)
    sequences = _made_up(tried, learner.policy.vocab_size)
    planned = plan_micro_batches(
        sequences,
        world_size=ranks.world_size,
        max_tokens=trainer.tokens_per_micro_batch,
        packing=trainer.packing,
    )
    micro_batches = planned[ranks.rank]
    loss_denominator = denominator(sequences)
    remedy = (
        f"lower trainer.tokens_per_micro_batch (now {trainer.tokens_per_micro_batch}), or give "
        "more ranks"
    )
    with told_what_did_not_fit("an update", remedy):
        learner.update(
            micro_batches, loss_denominator
        )  # makes the optimizer's state, and warms caches up
    began_at = passed_at = time.perf_counter()

    def note() -> None:
        nonlocal passed_at
        passed_at = time.perf_counter()

    with told_what_did_not_fit("an update", remedy):
        stats = learner.update(micro_batches, loss_denominator, note)
    passes = passed_at - began_at
    return UpdateTrialRecord(passes, max(0.0, stats.seconds - passes), ranks.num_devices)


def _made_up(tried: Sequence[TriedCompletion], vocab_size: int) -> list[TrainingSequence]:
    """Half of them right, so that there is something to learn."""
    rng = np.random.default_rng(0)
    sequences = []
    for index, completion in enumerate(tried):
        length = max(1, completion.num_tokens)
        sequences.append(
            TrainingSequence(
                prompt_token_ids=rng.integers(
                    0, vocab_size, max(1, completion.num_prompt_tokens)
                ).astype(np.int32),
                token_ids=rng.integers(0, vocab_size, length).astype(np.int32),
                generator_logprobs=np.full(length, -np.log(vocab_size), dtype=np.float32),
                loss_mask=np.ones(length, dtype=np.bool_),
                advantage=1.0 if index % 2 else -1.0,
                weight=1.0 / length,
            )
        )
    return sequences


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m rollcast.trainer.trial", description="Times one update."
    )
    parser.add_argument("--config", type=Path, required=True, help="run file, resolved")
    parser.add_argument(
        "--trial", type=Path, required=True, help="what the generator's trial wrote"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="file of the record, JSON; rank 0 writes it"
    )
    arguments = parser.parse_args()
    configure_logging("trial")
    try:
        config = load_run_config(arguments.config)
        ranks = join_configured_ranks(config.trainer)
        try:
            tried = read_record(arguments.trial, TrialRecord).completions
            update_record = time_update(config.model, config.recipe, config.trainer, ranks, tried)
        finally:
            ranks.leave()
        if ranks.rank == 0:
            replace_json(arguments.out, asdict(update_record))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    end(main())
