"""What the model wrote at an evaluation stands in the run folder as text, the same prompts every
time, bounded.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np

from rollcast.rollouts.records import (
    Branch,
    Episode,
    EpisodeEnd,
    Leg,
    LegKind,
    Rollout,
    Turn,
    VersionSpan,
)
from rollcast.runfolder.records import as_json, parse
from rollcast.runfolder.samples import SamplesRecord
from rollcast.trainer.control.evaluation import Closed
from rollcast.trainer.control.sample_texts import (
    MAX_CHARACTERS,
    MAX_SAMPLED_TOKENS,
    MAX_TURNS,
    fair_limit,
    make_samples_record,
    shorten_text,
    token_texts,
)
from rollcast.wire.version import PolicyVersion
from testkit.rollouts.examples import make_answer_group, make_task
from testkit.rollouts.memory import MemoryBroker
from testkit.trainer.quick_control import (
    AnsweringQueue,
    Answers,
    CharTokenizer,
    QuickLearners,
    lines,
    make_config,
    make_controller,
    run,
)


def test_every_evaluation_leaves_samples_of_the_same_prompts(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=4), MemoryBroker()
    answers = Answers(0.4, PolicyVersion(1, 0), random.Random(0))
    run(make_controller(config, AnsweringQueue(broker, answers), answers, QuickLearners()), answers)
    told = lines(config, "samples.jsonl")
    assert [(line["step"], line["dataset"]) for line in told] == [
        (line["step"], line["dataset"]) for line in lines(config, "evaluations.jsonl")
    ]
    tokenizer = CharTokenizer()
    prompts = [tokenizer.decode(tokenizer(f"q{number}")["input_ids"]) for number in (100, 101, 102)]
    for line in told:
        assert [sample["prompt"] for sample in line["samples"]] == prompts
        for sample in line["samples"]:
            assert len(sample["completion"]) == sample["num_tokens"] > 0
            assert sample["status"] == ("ok" if sample["reward"] else "wrong")


def test_a_run_of_episodes_leaves_their_turns_their_means_and_their_metrics(tmp_path: Path) -> None:
    config, broker = make_config(tmp_path, steps=4), MemoryBroker()
    config = config.model_copy(
        update={"recipe": config.recipe.model_copy(update={"max_completion_tokens": 40})}
    )
    answers = Answers(0.5, PolicyVersion(1, 0), random.Random(0))
    controller = make_controller(
        config, AnsweringQueue(broker, answers), answers, QuickLearners(), environment="world"
    )
    run(controller, answers)
    samples = [
        sample for line in lines(config, "samples.jsonl") for sample in parse_samples(line).samples
    ]
    episodes = [sample.episode for sample in samples if sample.episode is not None]
    assert len(episodes) == len(samples) > 0
    assert {episode.environment for episode in episodes} == {"world"}
    for sample in samples:
        assert sample.episode is not None
        turns = sample.episode.turns
        assert len(turns) == sample.episode.num_turns
        written = "".join(
            token
            for turn in turns
            for leg in turn.legs
            for token in leg.tokens
            if turn.sequence == 0
        )
        assert written == sample.completion, "turns and given text make up the first sequence"
    assert all(line["episode_turns_mean"] > 0 for line in lines(config, "steps.jsonl"))
    ended = controller._reporter._exporter.render().decode()
    assert 'rollcast_episodes_total{end="failed",environment="world"' in ended


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "a" * 5_000 + "b" * 5_000
    short = shorten_text(text)
    assert short == f"{'a' * 2_000} [... 6000 characters ...] {'b' * 2_000}"
    assert shorten_text("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS


def parse_samples(line: dict[str, object]) -> SamplesRecord:
    return parse(json.dumps(line).encode(), SamplesRecord)


OLD, NEW = PolicyVersion(1, 7), PolicyVersion(1, 8)


def letters(text: str) -> np.ndarray:
    return np.array([ord(letter) for letter in text], np.int32)


def of_letters(token_ids: object) -> str:
    return "".join(map(chr, token_ids))  # type: ignore[call-overload]


def recorded(rollout: Rollout) -> SamplesRecord:
    """The record of an evaluation of one prompt, as another process reads it."""
    group = make_answer_group(
        make_task(1, prompt_token_ids=letters("task")), [rollout], first_version=OLD
    )
    record = make_samples_record(Closed("d", 40, None, (), [], (group,)), 1, of_letters)
    return parse_samples(as_json(record))


def test_an_episode_is_recorded_turn_by_turn_with_tokens_versions_and_masks() -> None:
    """Thinking that is cut by a phrase, a tool's answer, an update in the second turn, and a
    branch.
    """
    text = "thinkPHcall" + "<42>" + "answer"
    rollout = Rollout(
        index=0,
        token_ids=letters(text),
        logprobs=np.linspace(-2.0, 0.0, len(text), dtype=np.float32),
        version_spans=(VersionSpan(OLD, 0, 17), VersionSpan(NEW, 17, 21)),
        loss_masked=((5, 7), (11, 15)),
        legs=(
            Leg(LegKind.THINKING, 0, 5),
            Leg(LegKind.INTERRUPTION_PHRASE, 5, 7),
            Leg(LegKind.ANSWER, 7, 11),
            Leg(LegKind.GIVEN, 11, 15),
            Leg(LegKind.ANSWER, 15, 21),
        ),
        reward=1.0,
    )
    branch = Branch(letters("again"), letters("no"), np.array([-1.5, -0.25], np.float32))
    rollout.episode = Episode(
        "calculator",
        prompt_token_ids=letters("task, with an opening"),
        turns=(
            Turn(0, 0, 11, tool_calls=1, environment_seconds=0.5),
            Turn(0, 15, 21, reward=0.5),
            Turn(1, 0, 2, malformed_calls=1),
        ),
        branches=(branch,),
        end=EpisodeEnd.ANSWERED,
    )
    (sample,) = recorded(rollout).samples
    assert sample.prompt == "task, with an opening"
    assert sample.episode is not None
    first, second, third = sample.episode.turns
    assert [(leg.kind, leg.version, "".join(leg.tokens), leg.is_trained) for leg in first.legs] == [
        ("thinking", "1.7", "think", True),
        ("phrase", "1.7", "PH", False),
        ("answer", "1.7", "call", True),
        ("given", "1.7", "<42>", False),
    ]
    assert first.legs[0].logprobs == [round(float(value), 3) for value in rollout.logprobs[:5]]
    assert (first.legs[3].tokens, first.legs[3].logprobs) == (["<42>"], [])
    assert (first.tool_calls, first.environment_seconds, second.reward, third.malformed_calls) == (
        1,
        0.5,
        0.5,
        1,
    )
    assert [(leg.version, leg.tokens) for leg in second.legs] == [
        ("1.7", ["a", "n"]),
        ("1.8", ["s", "w", "e", "r"]),
    ]
    assert [(turn.number, turn.sequence, turn.prompt) for turn in sample.episode.turns] == [
        (1, 0, ""),
        (2, 0, ""),
        (3, 1, "again"),
    ]
    assert third.legs[0].tokens == ["n", "o"]


def test_a_long_episode_is_bounded_and_keeps_both_ends() -> None:
    """Sixty turns of 500 tokens with answers of 5,000: all would take 5 MB."""
    turns, legs, at = [], [], 0
    for _ in range(60):
        turns.append(Turn(0, at, at + 500, tool_calls=1))
        legs += [Leg(LegKind.ANSWER, at, at + 500), Leg(LegKind.GIVEN, at + 500, at + 5_500)]
        at += 5_500
    rollout = Rollout(
        0, np.full(at, ord("x"), np.int32), np.zeros(at, np.float32), legs=tuple(legs)
    )
    rollout.episode = Episode("shell", turns=tuple(turns), end=EpisodeEnd.TURNS)
    record = recorded(rollout)
    assert len(json.dumps(as_json(record))) < 60_000
    episode = record.samples[0].episode
    assert episode is not None
    assert episode.num_turns == 60
    assert [turn.number for turn in episode.turns] == [*range(1, 17), *range(45, 61)]
    assert len(episode.turns) == MAX_TURNS
    for turn in episode.turns:
        assert (
            sum(len(leg.tokens) + leg.num_left_out for leg in turn.legs if leg.kind == "answer")
            == 500
        )
    assert (
        sum(len(leg.logprobs) for turn in episode.turns for leg in turn.legs) <= MAX_SAMPLED_TOKENS
    )


def test_short_turns_leave_their_share_to_long_ones() -> None:
    rng = random.Random(0)
    for _ in range(200):
        lengths = [rng.randrange(0, 60) for _ in range(rng.randrange(1, 9))]
        limit = fair_limit(lengths, 100)
        used = [sum(min(length, bound) for length in lengths) for bound in (limit, limit + 1)]
        assert used[0] <= 100
        assert used[1] > 100 or limit == max(lengths)
    assert fair_limit([], 100) == 0


def test_a_character_of_several_tokens_is_the_text_of_the_last() -> None:
    data = "aß→🙂".encode()
    texts = token_texts(list(data), lambda ids: bytes(ids).decode(errors="replace"))
    assert texts == ["a", "", "ß", "", "", "→", "", "", "", "🙂"]
    assert (
        token_texts(list(data[:-1]), lambda ids: bytes(ids).decode(errors="replace"))[-1]
        == "\N{REPLACEMENT CHARACTER}"
    )
