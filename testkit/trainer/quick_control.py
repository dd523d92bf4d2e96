"""A controller around the real queue, gate, ledger and books; learner and generator are quick
stand-ins.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import yaml

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.rollouts.base import GeneratorQueue, TrainerQueue
from rollcast.rollouts.errors import QueueAway
from rollcast.rollouts.records import EpisodeEnd, Purpose, Rollout, RolloutGroup
from rollcast.runfolder.folder import mark_format
from rollcast.tasks.prompt import Prompt
from rollcast.telemetry import trainer_metrics
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.build import build_controller
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook
from rollcast.trainer.ending import TrainerEnding
from rollcast.trainer.learner.step_sums import UpdateStats
from rollcast.weights.plan.manifest import TensorSpec, plan_buckets
from rollcast.weights.sender.lanes import ONE_LANE
from rollcast.weights.sender.staging import StagingSlots
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.episodes import make_episode
from testkit.rollouts.examples import make_answer_group, make_graded_rollout
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue
from testkit.system.audit import read_lines


class CharTokenizer:
    chat_template = None
    eos_token_id: int | None = 0

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [1 + ord(character) % 50 for character in text]}

    def apply_chat_template(self, conversation: Any, **_: Any) -> Any:
        raise NotImplementedError("the model has no chat template")

    def decode(self, token_ids: Any, **_: Any) -> str:
        return "".join(chr(ord("0") + token) for token in token_ids)


class QuickLearners:
    """Counts updates and remembers checkpoints."""

    specs = (TensorSpec("w", "float32", (2,)),)
    vocab_size = 64
    routing = None
    ranks: Any = SimpleNamespace(num_devices=1, device=torch.device("cpu"), are_several_gpus=False)

    def __init__(self) -> None:
        self.saved: dict[str, dict[str, Any]] = {}
        self.slots = StagingSlots(plan_buckets(self.specs, 1 << 16))
        self.lanes = ONE_LANE
        self.rank_store = None

    def update(self, sequences: list[Any], between: Any) -> UpdateStats:
        between()
        tokens = sum(len(sequence.token_ids) for sequence in sequences)
        return UpdateStats(True, 0.1, 1.0, 0.0, 0.0, 0.0, 1.0, tokens, tokens, 1, 0.001)

    def stage(self, slot: int, version: PolicyVersion) -> None:
        self.slots.fill(slot, version, 1.0, lambda snapshot: None)

    def save(self, version: PolicyVersion, state: dict[str, Any]) -> Future[Path]:
        self.saved[str(version)] = json.loads(json.dumps(state))
        path_future: Future[Path] = Future()
        path_future.set_result(Path(str(version)))
        return path_future

    def export(self, folder: Path) -> None:
        folder.mkdir(parents=True)


@dataclass
class Answers:
    """How the stand-in generator answers."""

    pass_rate: float
    version: PolicyVersion
    rng: random.Random


async def answer_everything(
    generator: GeneratorQueue,
    answers: Answers,
    *,
    held_out_solved: bool = False,
    spoil: Callable[[RolloutGroup], RolloutGroup] = lambda group: group,
) -> None:
    version = answers.version
    for claimed_task in await generator.claim(
        train=99, evals=99, first_version=lambda: version, block_seconds=0.0
    ):
        task = claimed_task.task
        rollouts = []
        for index in range(task.num_rollouts):
            if task.episode is not None:
                rollouts.append(_random_episode(task.episode.environment, index, answers))
                continue
            solved = held_out_solved and task.purpose is Purpose.EVAL
            right = solved or answers.rng.random() < answers.pass_rate
            rollouts.append(make_graded_rollout(index, float(right), version))
        group = make_answer_group(task, rollouts, first_version=version, generator=generator.owner)
        await generator.publish(claimed_task, spoil(group))


def _random_episode(environment: str, index: int, answers: Answers) -> Rollout:
    """Right or wrong, with a branch or without, and now and then given up because its environment
    failed.
    """
    rng = np.random.default_rng(answers.rng.randrange(1 << 30))
    end = answers.rng.choice(
        [EpisodeEnd.ANSWERED, EpisodeEnd.ANSWERED, EpisodeEnd.DONE, EpisodeEnd.FAILED]
    )
    rollout = make_episode(
        rng,
        index,
        turns=answers.rng.choice([(1,), (3,), (2, 1)]),
        reward=float(answers.rng.random() < answers.pass_rate),
        vocab=QuickLearners.vocab_size,
        version=answers.version,
        later=answers.version,
        end=end,
    )
    assert rollout.episode is not None
    rollout.episode.environment = environment
    return rollout


class AnsweringQueue(MemoryTrainerQueue):
    """Before each read a generator answers everything that waits; some calls find Redis away."""

    def __init__(self, broker: MemoryBroker, answers: Answers) -> None:
        super().__init__(broker)
        self._generator = MemoryGeneratorQueue(broker, "g")
        self._answers = answers
        self.away_share = 0.0
        self.held_out_solved = False
        self.silent = False
        """The generator answers nothing more."""
        self.lost_evaluation: int | None = None
        """Evaluation tasks of this step are lost once, as by a Redis that dies right after it took
        them."""
        self.spoil: Callable[[RolloutGroup], RolloutGroup] = lambda group: group
        """Change that the generator makes to an answer before it hands it in."""

    def read(self, max_groups: int, block_seconds: float) -> Any:
        if not self.silent:
            changes: Any = {"held_out_solved": self.held_out_solved, "spoil": self.spoil}
            asyncio.run(answer_everything(self._generator, self._answers, **changes))
        self._maybe_away()
        return super().read(max_groups, 0.0)

    def remove(self, stream_ids: Any) -> None:
        self._maybe_away()
        super().remove(stream_ids)

    def dispatch(self, tasks: Any) -> Any:
        self._maybe_away()
        if (
            tasks
            and tasks[0].purpose is Purpose.EVAL
            and tasks[0].eval_step == self.lost_evaluation
        ):
            self.lost_evaluation = None
            return []
        return super().dispatch(tasks)

    def _maybe_away(self) -> None:
        if self._answers.rng.random() < self.away_share:
            raise QueueAway("away")


def make_config(folder: Path, **budget: int) -> RunConfig:
    settings = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    return parse_run_config(settings | {"folder": str(folder), "budget": budget}, source="test")


def make_controller(
    config: RunConfig,
    queue: TrainerQueue,
    answers: Answers,
    learners: QuickLearners,
    *,
    progress: Progress | None = None,
    stop: Any = lambda: False,
    environment: str = "",
) -> Controller:
    """`environment`: of every prompt. Empty = they are answered once."""

    def book(start: int, count: int) -> PromptBook:
        verifier = "" if environment else "exact"
        prompts = [
            Prompt(f"p{i}", "d", f"q{i}", '""', verifier, environment=environment)
            for i in range(start, start + count)
        ]
        return PromptBook(prompts, CharTokenizer(), max_prompt_tokens=8)

    config.run_folder.mkdir(parents=True, exist_ok=True)
    mark_format(config.run_folder)
    stand_ins: Any = {"learners": learners, "encode": lambda text: []}
    controller = build_controller(
        config,
        queue=queue,
        books=Books(train=book(0, 22), held_out=book(100, 3)),
        exporter=Exporter("r"),
        progress=progress or Progress(),
        stop_requested=stop,
        **stand_ins,
    )
    answers.version = controller.state.version
    return controller


def lines(config: RunConfig, name: str) -> list[dict[str, Any]]:
    return read_lines(config.run_folder / name)


def follow_version(controller: Controller, answers: Answers, limit: int = 10**9) -> Any:
    """A stop check that keeps the generator at the newest version,
    and stops after `limit` steps.
    """

    def check() -> bool:
        answers.version = controller.state.version
        return controller.state.version.step >= limit

    return check


def run(controller: Controller, answers: Answers, limit: int = 10**9) -> TrainerEnding:
    controller._stop_requested = follow_version(controller, answers, limit)
    return controller.run()


def read_group_count(controller: Controller, outcome: str) -> float:
    """How many groups ended so, by the metric."""
    exporter = controller._reporter._exporter
    labels = {"run": "r", "outcome": outcome}
    return exporter.registry.get_sample_value(trainer_metrics.GROUPS.name, labels) or 0.0
