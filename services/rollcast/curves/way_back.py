"""The way back of a run that broke: the last kept checkpoint before its peak, and what continues
the run from there.
"""

from collections.abc import Sequence

from rollcast.curves.evaluations import CurvePoint
from rollcast.runfolder.kept_checkpoints import KeptCheckpoints, kept_in_words


def way_back(
    evaluations: Sequence[CurvePoint], peak_compute: float, kept_checkpoints: KeptCheckpoints
) -> str:
    """One sentence. `peak_compute`: of the peak, in the unit of the evaluations."""
    # Relative error of a compute that was mapped to the fitted axis and back
    peak = max(
        (item.step for item in evaluations if item.compute <= peak_compute * (1 + 1e-9)), default=0
    )
    earlier_steps = [step for step in kept_checkpoints.steps if step <= peak]
    if not earlier_steps:
        return (
            f"No checkpoint from before that peak, near step {peak}, is there "
            f"({kept_in_words(kept_checkpoints.steps)}): only another run can go back, with a "
            "larger trainer.keep_checkpoints."
        )
    step = earlier_steps[-1]
    command = f"{kept_checkpoints.command} {step}"
    if kept_checkpoints.command is None:
        command = f"set model.from_step to {step} in another run, whose model.from_run is this one"
    return (
        f"Once the cause is found, go back to the checkpoint of step {step}, the last one before "
        f"that peak, near step {peak} ({kept_in_words(kept_checkpoints.steps)}): {command}"
    )
