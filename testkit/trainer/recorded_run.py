"""A short run that records itself: the real trainer and verifier, and a generator that is the
oracle of `testkit.replay`, over queues in memory.

The generator's tokens are drawn at random, and their log-probs are the oracle's: of two versions,
with a KV mark at the begin of the second one.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rollcast.config.run import RunConfig, parse_run_config
from rollcast.rollouts.base import Claimed
from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    GradingStatus,
    KvMark,
    Leg,
    LegKind,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    StopReason,
    Turn,
    VersionSpan,
)
from rollcast.runfolder.files import checkpoint_place
from rollcast.runfolder.folder import mark_format
from rollcast.tasks.grading import grade
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.tokens import load_tokenizer
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.build import build_controller
from rollcast.trainer.control.controller import Controller
from rollcast.trainer.control.progress import Progress
from rollcast.trainer.control.prompt_book import Books, PromptBook
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.trainer.learner.whole_weights import gather_weights
from rollcast.trainer.service import restore
from rollcast.wire.version import PolicyVersion
from testkit.replay import replay_logprobs
from testkit.rollouts.examples import make_answer_group
from testkit.rollouts.memory import MemoryBroker, MemoryGeneratorQueue, MemoryTrainerQueue

BeforeStep = Callable[["WatchedLearners", int], None]
"""Called with the step of each version that was published, before the next update."""
Spoil = Callable[[RolloutGroup], None]
"""Changes an answer before the generator hands it in."""


def recorded_config(
    model: Path, folder: Path, /, *, steps: int = 3, **changes: dict[str, Any]
) -> RunConfig:
    """Every step is recorded with all weights. `changes`: of sections."""
    sections: dict[str, dict[str, Any]] = {
        "model": {"path": str(model), "dtype": "float32", "max_length": 128},
        "recipe": {
            "schedule": {"kind": "pipeline", "max_staleness": 2},
            "prompts_per_step": 2,
            "rollouts_per_prompt": 3,
            "max_prompt_tokens": 16,
            "max_completion_tokens": 40,
            "length_control": {"kind": "none"},
            "no_positive_resampling": None,
            "optimizer": {"learning_rate": 0.01, "warmup_steps": 0, "epsilon": 1e-8},
        },
        "tasks": {"evaluation": {"num_prompts": 1, "rollouts_per_prompt": 1, "every_steps": 100}},
        "trainer": {"tokens_per_micro_batch": 120, "logits_chunk_tokens": 16, "threads": 1},
        "record": {"every_steps": 1, "weights": "versions"},
        "budget": {"steps": steps},
        "rpc": {"port": 0},
    }
    for name, change in changes.items():
        sections[name] = {**sections.get(name, {}), **change}
    return parse_run_config({"run": "recorded", "folder": str(folder), **sections}, source="test")


class WatchedLearners(LearnerGroup):
    """Keeps every published version for the oracle."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.published: dict[PolicyVersion, dict[str, Any]] = {}
        self.before_step: BeforeStep = lambda learners, version_step: None

    def stage(self, slot: int, version: PolicyVersion) -> None:
        super().stage(slot, version)
        weights = gather_weights(list(self.learner.policy.trained_weights()), self.ranks)()
        self.before_step(self, version.step)
        self.published[version] = {name: torch.from_numpy(row) for name, row in weights.items()}


@dataclass(eq=False)
class OracleGenerator:
    """Answers tasks; its log-probs are those of plain Hugging Face code."""

    causal_lm: Any
    tokenizer: Any
    learners: WatchedLearners
    is_episodic: bool = False
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    temperature: float | None = None
    """Temperature that it really samples with; None = the task's."""
    damage: Callable[[dict[str, Any]], None] | None = None
    """Changes the weights that it holds."""
    records_experts: bool = False
    """Every rollout is of one version then, and says which experts its routers chose."""

    def group(self, task: PromptTask, generator: str) -> RolloutGroup:
        versions = sorted(self.learners.published)[-2:]
        rollouts = [self._rollout(task, index, versions) for index in range(task.num_rollouts)]
        oldest = min(version for rollout in rollouts for version in rollout.versions)
        return make_answer_group(task, rollouts, first_version=oldest, generator=generator)

    def _rollout(self, task: PromptTask, index: int, versions: list[PolicyVersion]) -> Rollout:
        answer = task.verifier_reference.strip('"')
        if self.rng.random() < 0.5:
            answer = str(int(answer) + 1)
        drawn = "".join(self.rng.choice("0123456789+-*/=") for _ in range(self.rng.randint(3, 9)))
        token_ids = [*self._ids(f"{drawn}|{answer}"), self.tokenizer.eos_token_id]
        legs = [Leg(LegKind.ANSWER, 0, len(token_ids))]
        turns: list[Turn] = []
        if self.is_episodic:  # a turn, what a tool said, and the answer
            first = len(drawn)
            given = self._ids("=tool=")
            token_ids = [*token_ids[:first], *given, *token_ids[first:]]
            then = first + len(given)
            legs = [
                Leg(LegKind.ANSWER, 0, first),
                Leg(LegKind.GIVEN, first, then),
                Leg(LegKind.ANSWER, then, len(token_ids)),
            ]
            turns = [Turn(0, 0, first), Turn(0, then, len(token_ids))]
        rollout = Rollout(
            index=index,
            token_ids=np.array(token_ids, dtype=np.int32),
            logprobs=np.zeros(len(token_ids), dtype=np.float32),
            legs=tuple(legs),
            loss_masked=tuple((leg.start, leg.end) for leg in legs if leg.kind is LegKind.GIVEN),
            stop_reason=StopReason.END,
        )
        if self.is_episodic:
            assert task.episode is not None
            rollout.episode = Episode(
                task.episode.environment,
                turns=tuple(turns),
                branches=(self._branch(versions),),
                end=EpisodeEnd.ANSWERED,
            )
            rollout.episode.turns += (Turn(1, 0, len(rollout.episode.branches[0].token_ids)),)
        self._sample(task, rollout, versions)
        self._grade(task, rollout)
        return rollout

    def _branch(self, versions: list[PolicyVersion]) -> Branch:
        token_ids = np.array(
            [*self._ids(f"1+1|{self.rng.randint(1, 9)}"), self.tokenizer.eos_token_id], np.int32
        )
        return Branch(
            prompt_token_ids=np.array(self._ids("again:"), dtype=np.int32),
            token_ids=token_ids,
            logprobs=np.zeros(len(token_ids), dtype=np.float32),
            legs=(Leg(LegKind.ANSWER, 0, len(token_ids)),),
        )

    def _sample(self, task: PromptTask, rollout: Rollout, versions: list[PolicyVersion]) -> None:
        weights: dict[PolicyVersion, dict[str, Any]] = dict(self.learners.published)
        if self.damage is not None:
            weights = {version: dict(values) for version, values in weights.items()}
            for values in weights.values():
                self.damage(values)
        for sequence in rollout.sequences:
            length = len(sequence.token_ids)
            first = min(2, length - 1)
            prompt = rollout.sequence_prompt(sequence, task.prompt_token_ids)
            if len(versions) == 2 and first and not self.records_experts:
                sequence.version_spans = (
                    VersionSpan(versions[0], 0, first),
                    VersionSpan(versions[1], first, length),
                )
                sequence.kv_marks = (KvMark(first, len(prompt) - 1, versions[1]),)
            else:
                sequence.version_spans = (VersionSpan(versions[-1], 0, length),)
            temperature = self.temperature or task.sampling.temperature
            sequence.logprobs = replay_logprobs(
                sequence, prompt.tolist(), weights, self.causal_lm, temperature
            ).astype(np.float32)
            if self.records_experts:
                sequence.routed_experts = self._experts(prompt, sequence)

    def _experts(self, prompt: Any, sequence: Any) -> Any:
        """[P + L - 1, layers, choices] what the routers of the loaded version choose."""
        chosen: list[Any] = []
        routers = [
            module
            for module in self.causal_lm.modules()
            if type(module).__name__.endswith("Router")
        ]
        hooks = [
            router.register_forward_hook(lambda _, __, outputs: chosen.append(outputs[-1]))
            for router in routers
        ]
        token_ids = torch.tensor([[*prompt.tolist(), *sequence.token_ids.tolist()][:-1]])
        with torch.no_grad():
            self.causal_lm(input_ids=token_ids)
        for hook in hooks:
            hook.remove()
        return torch.stack(chosen, dim=1).to(torch.uint8).numpy()

    def _grade(self, task: PromptTask, rollout: Rollout) -> None:
        last = rollout.token_ids
        if rollout.episode is not None:
            turn = rollout.episode.turns[-1]
            last = rollout.sequences[turn.sequence].token_ids[turn.start : turn.end]
        text = self.tokenizer.decode(last[:-1].tolist())
        verdict = grade(task.verifier, text, task.verifier_reference)
        rollout.reward = verdict.reward
        rollout.grading_status = GradingStatus(verdict.status)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])


class OracleQueue(MemoryTrainerQueue):
    """Before each read the generator answers what waits."""

    def __init__(self, broker: MemoryBroker, generator: OracleGenerator, spoil: Spoil) -> None:
        super().__init__(broker)
        self._generator_queue = MemoryGeneratorQueue(broker, "g")
        self._oracle = generator
        self._spoil = spoil

    def read(self, max_groups: int, block_seconds: float) -> Any:
        import asyncio

        asyncio.run(self._answer())
        return super().read(max_groups, 0.0)

    async def _answer(self) -> None:
        version = max(self._oracle.learners.published)
        claimed: list[Claimed] = await self._generator_queue.claim(
            train=4, evals=4, first_version=lambda: version, block_seconds=0.0
        )
        for item in claimed:
            group = self._oracle.group(item.task, self._generator_queue.owner)
            if item.task.purpose is Purpose.TRAIN:
                self._spoil(group)
            await self._generator_queue.publish(item, group)


def make_recorded_run(
    config: RunConfig,
    ranks: Ranks,
    *,
    is_episodic: bool = False,
    spoil: Spoil = lambda group: None,
    before_step: BeforeStep = lambda learners, version_step: None,
    broker: MemoryBroker | None = None,
    exporter: Exporter | None = None,
    **generator: Any,
) -> Controller:
    """Run to the end of the budget, from the newest checkpoint if there is one; the bundles are in
    the run folder then.
    """
    from transformers import AutoModelForCausalLM

    tokenizer: Any = load_tokenizer(config.model)
    learners = WatchedLearners.build(config, ranks)
    assert isinstance(learners, WatchedLearners)
    learners.before_step = before_step
    causal_lm = AutoModelForCausalLM.from_pretrained(config.model.path, dtype=torch.float32)
    if config.model.lora is not None:
        from peft import LoraConfig, inject_adapter_in_model

        adapter = LoraConfig(
            r=config.model.lora.rank,
            lora_alpha=int(config.model.lora.alpha),
            target_modules="all-linear",
        )
        causal_lm = inject_adapter_in_model(adapter, causal_lm)
    oracle = OracleGenerator(causal_lm, tokenizer, learners, is_episodic, **generator)

    def book(start: int, count: int) -> PromptBook:
        prompts = [
            Prompt(
                f"p{number}",
                "sums",
                f"{number}+{number}=",
                f'"{2 * number}"',
                "arithmetic",
                environment="world" if is_episodic else "",
                answer=f'"{2 * number}"' if is_episodic else "",
            )
            for number in range(start, start + count)
        ]
        return PromptBook(prompts, tokenizer, max_prompt_tokens=16)

    config.run_folder.mkdir(parents=True, exist_ok=True)
    mark_format(config.run_folder)
    location = checkpoint_place(config.run_folder, config.trainer.checkpoints)
    controller = build_controller(
        config,
        learners=learners,
        queue=OracleQueue(broker or MemoryBroker(), oracle, spoil),
        books=Books(train=book(1, 12), held_out=book(40, 1)),
        encode=oracle._ids,
        exporter=exporter or Exporter("recorded"),
        progress=restore(config.run, location, learners, resume=True) or Progress(),
        stop_requested=lambda: False,
    )
    try:
        controller.start()
        controller.run()
    except Exception as error:
        controller.record_failure(error)
        raise
    finally:
        controller.close()
        learners.saver.wait_written()
    return controller
