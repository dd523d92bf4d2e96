"""`python -m rollcast.trainer.replay RUN --step N`: the program behind `rollcast replay`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.json_text import to_json
from rollcast.config.model import Model
from rollcast.recorded.array_file import Arrays
from rollcast.recorded.origin import is_own_record
from rollcast.recorded.recorded_index import find_step
from rollcast.recorded.step_bundle import StepBundle, load_step
from rollcast.tasks.tokens import Tokenizer, load_tokenizer
from rollcast.trainer.learner.ranks import Ranks, join_ranks
from rollcast.trainer.replay.assembly_check import check_assembly
from rollcast.trainer.replay.comparison import ReplayReport
from rollcast.trainer.replay.counterfactual import changed_config, counterfactual, in_words
from rollcast.trainer.replay.grade_check import check_grades
from rollcast.trainer.replay.loss_check import check_losses
from rollcast.trainer.replay.recorded_batch import RecordedBatch
from rollcast.trainer.replay.sampling_check import LOGPROBS as SAMPLED_LOGPROBS
from rollcast.trainer.replay.sampling_check import check_labels, check_sampling
from rollcast.trainer.replay.token_table import token_rows, tokens_in_words
from rollcast.trainer.replay.trainer_pass import LOGPROBS, check_digests, check_update


def replay(
    bundle: StepBundle,
    ranks: Ranks,
    *,
    group: int | None = None,
    loss: str | None = None,
    settings: Sequence[str] = (),
    trust: bool = False,
) -> ReplayReport:
    """Compute a recorded step again and compare it with its record.

    `group`: sequence of the one task to compare. `loss`, `settings`: another recipe. `trust`: run
    the code that the record names, wherever it was recorded. Raises UserError for a group or
    settings that do not exist.
    """
    sequences = [item.sequence for item in bundle.groups]
    if group is not None and group not in sequences:
        named = ", ".join(map(str, sequences[:20]))
        raise UserError(f"--group {group}: is not in this step; choose among {named}")
    is_trusted = trust or is_own_record(bundle)
    model = RecordedBatch(bundle, is_trusted=is_trusted).config.model
    batch = RecordedBatch(bundle, _tokenizer(model), group, is_trusted)
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
    reason = batch.missing_model
    if bundle.weights_kept == "none":
        reason = "no weights were kept (record.weights: none)"
    if reason:
        for check in (LOGPROBS, "gradient norm"):
            report.not_checked("trainer", check, reason)
        report.not_checked("generator", SAMPLED_LOGPROBS, reason)
        return None
    damaged = check_digests(batch, report)
    weights = _check_trainer(batch, report, ranks, damaged)
    if bundle.weights_kept != "versions":
        reason = "only the trainer's weights were kept (record.weights: step)"
        report.not_checked("generator", SAMPLED_LOGPROBS, reason)
        return weights
    try:
        check_sampling(batch, report, damaged)
    except (UserError, ValueError, OSError, NotImplementedError) as error:
        report.not_checked("generator", SAMPLED_LOGPROBS, f"the model cannot be run here: {error}")
    return weights


def _check_trainer(
    batch: RecordedBatch, report: ReplayReport, ranks: Ranks, damaged: set[str]
) -> Arrays | None:
    """Repeat the update; returns the weights before it, None if that is not possible."""
    version = batch.bundle.version
    if str(version) in damaged or not batch.bundle.weights_file(version).exists():
        for check in (LOGPROBS, "gradient norm"):
            report.not_checked("trainer", check, f"the weights {version} were not kept whole")
        return None
    weights, _ = batch.bundle.load_weights(version)
    try:
        check_update(batch, report, ranks, weights)
    except (UserError, ValueError) as error:
        report.not_checked("trainer", "gradient norm", str(error))
        return None
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
    parser.add_argument("--trust", action="store_true")
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
                trust=arguments.trust,
            )
        finally:
            ranks.leave()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if arguments.json:
        print(to_json(report.as_json(), indent=1))
        return 0
    lines = tokens_in_words(report.tokens) + report.in_words()
    if report.counterfactual is not None:
        lines += in_words(report.counterfactual)
    print("\n".join(lines))
    return 0
