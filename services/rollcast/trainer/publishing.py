"""The publisher of a run's weights, for a controller that is still to be made.

It needs torch, its device and the learner's slots, which the controller does not know. The controller's history and its
fleet are made later than those.
"""

from pathlib import Path

from rollcast.config.recipe import Recipe
from rollcast.config.services import Rpc, Weights
from rollcast.runfolder.run_secrets import secret_place
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.fleet import OnRemoved, PublisherMaker
from rollcast.trainer.control.history import SurvivingHistory
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.weights.sender.publisher import Publisher


def publisher_maker(
    weights: Weights, rpc: Rpc, recipe: Recipe, run_folder: Path, learners: LearnerGroup, exporter: Exporter
) -> PublisherMaker:
    """The argument of `build_controller`."""

    def make(history: SurvivingHistory, on_removed: OnRemoved) -> Publisher:
        return Publisher(
            weights=weights,
            rpc=rpc,
            incarnation=history.incarnation,
            history=history.earlier,
            lm_head=recipe.lm_head,
            specs=learners.specs,
            device=learners.ranks.device,
            exporter=exporter,
            on_removed=on_removed,
            slots=learners.slots,
            lanes=learners.lanes,
            router_replay=recipe.router_replay,
            secret_place=secret_place(run_folder, "rpc.token"),
        )

    return make
