"""Forced interruption from the generator's completions to the gradient: the phrase is context and
nothing else.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from rollcast.config.errors import UserError
from rollcast.config.recipe import Interruption, Recipe
from rollcast.generator.completion import Completion
from rollcast.recipe.length_control import interruption_position
from rollcast.rollouts.records import (
    GradingStatus,
    LegKind,
    LengthBudget,
    PromptTask,
    Purpose,
    Rollout,
    RolloutGroup,
    Sampling,
    StopReason,
    VersionSpan,
)
from rollcast.telemetry.exporter import Exporter
from rollcast.trainer.control.assembly import assemble
from rollcast.trainer.control.prompt_book import length_budget
from rollcast.trainer.control.telemetry import export_batch_statistics
from rollcast.trainer.learner.group import LearnerGroup
from rollcast.trainer.learner.ranks import Ranks
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group
from tests.trainer.tiny_models import VOCAB, make_config

V = PolicyVersion(1, 0)
PHRASE, MARKER = [40, 41, 42], [50]
LOW, HIGH, ANSWER, BUDGET, SEED = 6, 12, 5, 30, 11


def encode(text: str) -> list[int]:
    return PHRASE if text == "phrase" else MARKER


RECIPE = {
    "length_control": {
        "kind": "interruption",
        "phrase": "phrase",
        "end_of_thinking": "marker",
        "position": (LOW, HIGH),
        "answer_tokens": ANSWER,
    },
    "max_completion_tokens": BUDGET,
    "rollouts_per_prompt": 6,
}


def make_task(sequence: int, prompt: list[int], length: LengthBudget) -> PromptTask:
    return PromptTask(
        sequence=sequence,
        incarnation=1,
        purpose=Purpose.TRAIN,
        dataset="d",
        prompt_id=str(sequence),
        prompt_token_ids=np.array(prompt, np.int32),
        num_rollouts=6,
        sampling=Sampling(),
        length=length,
        verifier="exact",
        reference='""',
    )


def sampled(task: PromptTask, index: int, rng: random.Random) -> Rollout:
    """One completion as the generator makes it; the "model" never ends its text early, and thinks
    long or briefly.
    """
    completion = Completion(task, index, lambda token_ids: "".join(map(chr, token_ids)))
    brief = rng.random() < 0.3
    while (leg := completion.next_leg()) is not None:
        if leg.force_phrase:
            completion.force_phrase(V)
        tokens = [rng.randrange(2, 40) for _ in range(leg.max_tokens)]
        if brief and not completion.token_ids:
            tokens[LOW - 2] = MARKER[0]
        completion.append(
            tokens, [rng.uniform(-6, -2) for _ in tokens], [VersionSpan(V, 0, len(tokens))]
        )
        if completion.interrupted or brief:
            break
    completion.stop_reason = StopReason.END
    rollout = completion.rollout()
    rollout.reward = float(rng.random() < 0.5)
    rollout.grading_status = GradingStatus.OK if rollout.reward else GradingStatus.WRONG
    return rollout


@pytest.fixture
def groups() -> list[RolloutGroup]:
    control = Interruption.model_validate(RECIPE["length_control"])
    recipe = make_config(Path("m"), Path("f"), recipe=RECIPE).recipe
    assert recipe.length_control == control
    budget, rng, made = length_budget(recipe, encode, SEED), random.Random(0), []
    for sequence in range(5):
        task = make_task(sequence, [rng.randrange(2, VOCAB) for _ in range(3)], budget)
        rollouts = [sampled(task, index, rng) for index in range(6)]
        made.append(make_answer_group(task, rollouts, first_version=V))
    return made


def budget_of(max_tokens: int) -> LengthBudget:
    """Thinking is cut at HIGH, always."""
    control = Interruption.model_validate(RECIPE["length_control"]).model_copy(
        update={"position": (HIGH, HIGH)}
    )
    return length_budget(
        Recipe(length_control=control, max_completion_tokens=max_tokens), encode, SEED
    )


def test_behind_the_last_position_there_is_room_for_the_phrase_and_a_whole_answer() -> None:
    completion = Completion(make_task(0, [2], budget_of(HIGH + len(PHRASE) + ANSWER)), 0, str)
    completion.append([2] * HIGH, [-1.0] * HIGH, [VersionSpan(V, 0, HIGH)])
    assert completion.next_leg() == (ANSWER, True)


def test_a_budget_that_forgets_the_phrase_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"max_completion_tokens = 19: .*the 3 tokens of its phrase .* take 20"
    ) as told:
        budget_of(HIGH + len(PHRASE) + ANSWER - 1)
    assert "\n" not in str(told.value)


def test_thinking_stops_at_the_drawn_position_and_the_answer_follows(
    groups: list[RolloutGroup],
) -> None:
    interrupted = 0
    for group in groups:
        for rollout in group.rollouts:
            cut = interruption_position(
                seed=SEED, sequence=group.sequence, rollout=rollout.index, low=LOW, high=HIGH
            )
            ends = {leg.kind: leg.end for leg in rollout.legs}
            thinking = rollout.token_ids[: ends[LegKind.THINKING]].tolist()
            if rollout.interrupted:
                interrupted += 1
                assert len(thinking) == cut
                assert MARKER[0] not in thinking
                assert rollout.token_ids[cut : cut + len(PHRASE)].tolist() == PHRASE
                assert rollout.num_tokens - cut - len(PHRASE) == ANSWER
            else:
                assert MARKER[0] in thinking[:cut], (
                    "it stopped thinking by itself before the position"
                )
            assert rollout.num_tokens <= BUDGET
    rollouts = sum(len(group.rollouts) for group in groups)
    assert 0 < interrupted < rollouts
    statistics = export_batch_statistics(exporter := Exporter("r"), groups)
    assert statistics["interrupted_ratio"] == interrupted / rollouts
    assert (
        f'rollcast_interrupted_ratio{{run="r"}} {interrupted / rollouts}'
        in exporter.render().decode()
    )


def slow_gradient(
    model: torch.nn.Module, groups: list[RolloutGroup], *, phrase_carries_loss: bool
) -> dict[str, Tensor]:
    """ScaleRL's objective, token by token; optionally with the mistake
    of training on the phrase.
    """
    varied = [group for group in groups if len({rollout.reward for rollout in group.rollouts}) > 1]
    centred = {
        (group.sequence, rollout.index): rollout.reward
        - float(np.mean([other.reward for other in group.rollouts]))
        for group in varied
        for rollout in group.rollouts
    }
    deviation = math.sqrt(float(np.mean(np.square(list(centred.values())))))
    objective = torch.zeros((), dtype=torch.float64)
    for group in varied:
        inner, count = torch.zeros((), dtype=torch.float64), 0
        for rollout in group.rollouts:
            prompt, tokens = group.prompt_token_ids.tolist(), rollout.token_ids.tolist()
            rows = torch.log_softmax(model(input_ids=torch.tensor([prompt + tokens])).logits[0], 1)
            phrase = {
                position
                for leg in rollout.legs
                if leg.kind is LegKind.INTERRUPTION_PHRASE
                for position in range(leg.start, leg.end)
            }
            for position, token in enumerate(tokens):
                if position in phrase and not phrase_carries_loss:
                    continue
                logprob = rows[len(prompt) + position - 1, token]
                ratio = min(math.exp(logprob.item() - float(rollout.logprobs[position])), 5.0)
                inner = (
                    inner
                    + ratio * centred[group.sequence, rollout.index] / (deviation + 1e-6) * logprob
                )
                count += 1
        objective = objective + inner / count
    model.zero_grad()
    (-objective / len(varied)).backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def test_the_phrase_carries_no_loss(
    ranks: Ranks, untied_model: Path, tmp_path: Path, groups: list[RolloutGroup]
) -> None:
    """The update's whole gradient is that of the sampled tokens; training on the phrase as well
    would be another.
    """
    config = make_config(untied_model, tmp_path, recipe=RECIPE)
    learner_group = LearnerGroup.build(config, ranks)
    learner = learner_group.learner
    learner.optimizer_settings = learner.optimizer_settings.model_copy(
        update={"max_grad_norm": 1e9}
    )
    sequences = assemble(groups, config.recipe).sequences
    assert sum(int((~s.loss_mask).sum()) for s in sequences) >= len(PHRASE)
    learner_group.update(sequences)
    plain = transformers.AutoModelForCausalLM.from_pretrained(untied_model, dtype=torch.float64)
    right = slow_gradient(plain, groups, phrase_carries_loss=False)
    wrong = slow_gradient(plain, groups, phrase_carries_loss=True)
    moments = {
        name: learner.optimizer.state[weight]["exp_avg"].full_tensor().double()
        / (1 - learner.optimizer_settings.betas[0])
        for name, weight in learner.policy.named_weights()
    }

    def distance(gradient: dict[str, Tensor]) -> float:
        square = sum(float((moments[name] - gradient[name]).square().sum()) for name in moments)
        return math.sqrt(square / sum(float(value.square().sum()) for value in gradient.values()))

    assert distance(right) < 1e-5
    assert distance(wrong) > 1e-2
