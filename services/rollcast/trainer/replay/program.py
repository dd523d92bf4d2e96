"""`python -m rollcast.trainer.replay RUN --step N`: the program behind `rollcast replay`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.model import Model
from rollcast.recorded.array_file import Arrays
from rollcast.recorded.recorded_index import find_step
from rollcast.recorded.step_bundle import StepBundle, load_step
from rollcast.tasks.tokens import Tokenizer, load_tokenizer
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.trainer.replay.assembled import check_assembly
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.counterfactual import changed_config, counterfactual, in_words
from rollcast.trainer.replay.grades import check_grades
from rollcast.trainer.replay.losses import check_losses
from rollcast.trainer.replay.recorded_batch import RecordedBatch
from rollcast.trainer.replay.sampling import LOGPROBS as SAMPLED_LOGPROBS
from rollcast.trainer.replay.sampling import check_labels, check_sampling
from rollcast.trainer.replay.token_table import token_rows, tokens_in_words
from rollcast.trainer.replay.trainer_pass import LOGPROBS, check_digests, check_update


def replay(
    bundle: StepBundle,
    ranks: Ranks,
    *,
    group: int | None = None,
    loss: str | None = None,
    settings: Sequence[str] = (),
) -> ReplayReport:
    """Compute a recorded step again and compare it with its record.

    `group`: sequence of the one task to look at. `loss`, `settings`: another recipe. Raises
    UserError for a group or settings that do not exist.
    """
    sequences = [item.sequence for item in bundle.groups]
    if group is not None and group not in sequences:
        named = ", ".join(map(str, sequences[:20]))
        raise UserError(f"--group {group}: is not in this step; choose among {named}")
    batch = RecordedBatch(bundle, None, group)
    batch = RecordedBatch(bundle, _tokenizer(batch.config.model), group)
    changed = changed_config(batch, loss, settings) if loss or settings else None
    report = ReplayReport(bundle.path.name.removeprefix("step-"))
    check_assembly(batch, report, check_grades(batch, report))
    check_losses(batch, report)
    check_labels(batch, report)
    weights = _check_weights(batch, report, ranks)
    if changed is not None:
        report.counterfactual = counterfactual(
            batch, changed.recipe, changed.trainer.tokens_per_micro_batch, ranks, weights
        )
    if group is not None:
        report.tokens = token_rows(batch)
    return report


def _check_weights(batch: RecordedBatch, report: ReplayReport, ranks: Ranks) -> Arrays | None:
    """Replay with weights; returns those before the step, None if they are missing or damaged."""
    bundle = batch.bundle
    reason = ""
    if bundle.weights_kept == "none":
        reason = "no weights were kept (record.weights: none)"
    elif batch.tokenizer is None:
        reason = f"model.path = {batch.config.model.path!r} is not on this machine"
    if reason:
        report.not_checked("trainer", LOGPROBS, reason)
        report.not_checked("trainer", "gradient norm", reason)
        report.not_checked("generator", SAMPLED_LOGPROBS, reason)
        return None
    damaged = check_digests(batch, report)
    weights = None
    if str(bundle.version) in damaged or not bundle.weights_file(bundle.version).exists():
        reason = f"the weights {bundle.version} were not kept whole"
        report.not_checked("trainer", LOGPROBS, reason)
        report.not_checked("trainer", "gradient norm", reason)
    else:
        weights, _ = bundle.load_weights(bundle.version)
        try:
            check_update(batch, report, ranks, weights)
        except (UserError, ValueError) as error:
            report.not_checked("trainer", "gradient norm", str(error))
            weights = None
    if bundle.weights_kept != "versions":
        reason = "only the trainer's weights were kept (record.weights: step)"
        report.not_checked("generator", SAMPLED_LOGPROBS, reason)
        return weights
    try:
        check_sampling(batch, report, damaged)
    except (UserError, ValueError, OSError, NotImplementedError) as error:
        report.not_checked("generator", SAMPLED_LOGPROBS, f"the model cannot be run here: {error}")
    return weights


def _tokenizer(model: Model) -> Tokenizer | None:
    try:
        return load_tokenizer(model)
    except UserError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="rollcast replay", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--step", required=True)
    parser.add_argument("--group", type=int)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--loss")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    try:
        bundle = load_step(find_step(arguments.run, arguments.step))
        # Nothing is waited for: it is the only rank.
        ranks = join_ranks(timeout_seconds=600.0, threads=1)
        try:
            report = replay(
                bundle,
                ranks,
                group=arguments.group,
                loss=arguments.loss,
                settings=arguments.set,
            )
        finally:
            ranks.leave()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if arguments.json:
        print(json.dumps(report.as_json(), indent=1))
        return 0
    lines = tokens_in_words(report.tokens) + report.in_words()
    if report.counterfactual is not None:
        lines += in_words(report.counterfactual)
    print("\n".join(lines))
    return 0
