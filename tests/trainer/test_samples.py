"""What the model wrote at an evaluation stands in the run folder as text, the same prompts every time, bounded."""

from __future__ import annotations

import random
from pathlib import Path

from rollcast.trainer.control.examiner import MAX_CHARACTERS, shortened
from rollcast.wire.version import PolicyVersion
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


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "a" * 5_000 + "b" * 5_000
    short = shortened(text)
    assert short == f"{'a' * 2_000} [... 6000 characters ...] {'b' * 2_000}"
    assert shortened("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
