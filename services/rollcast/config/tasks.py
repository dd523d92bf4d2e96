"""Settings of prompts, of the text around them, and of the evaluations."""

import math
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import Settings
from rollcast.config.bounds import backstop_seconds
from rollcast.config.datasets import ArithmeticDataset, Dataset, Mixture, Part
from rollcast.config.environments.found import EnvironmentOfRun
from rollcast.config.verifiers import VerifierSettings

MAX_REFERENCE_CHARACTERS = 16 << 20
"""Largest JSON text on wire 1 and in a data set: the tests of one programming task may well be some
megabytes."""


class PromptFormat(Settings):
    """The text that the model reads around a prompt."""

    layout: Literal["auto", "bare", "think"] = "auto"
    """`auto`: the tokenizer's chat template, the bare text if it has no template. `bare`: the bare
    text always. `think`: a template of ours for models without one, which asks for
    `<think>...</think>` and then the answer."""
    system: str | None = None
    """System message. None = none; with layout `think` its own, which asks for the think block."""
    enable_thinking: bool | None = None
    """Passed to a chat template that knows it (Qwen3's does). None = the template's own default."""
    open_thinking: bool = False
    """Let the prompt end in `<think>`, so that every completion starts inside the think block."""


class Evaluation(Settings):
    """Held-out evaluation, mean@`rollouts_per_prompt` (paper section 2.1)."""

    num_prompts: Annotated[int, Field(ge=1)] = 1_000
    """Held-out prompts, taken out of the data set (of each part of a mixture) before training;
    1,000 in the paper. Left out, `rollcast up` takes at most a fifth of a data set of rows."""
    rollouts_per_prompt: Annotated[int, Field(ge=1)] = 16
    """Completions per held-out prompt."""
    every_steps: Annotated[int, Field(ge=1)] = 100
    """Optimizer steps between two evaluations; one is also made before the first step and after the
    last."""
    deadline_seconds: Annotated[float, Field(gt=0)] = 3_600.0
    """An evaluation that has not come back by then is closed with the rollouts that are back, and
    counted."""
    seed: int = 0
    """Draws the prompts that are held out, and those of a downstream set that is cut. Apart from
    the run's seed, so that runs which differ in that one alone are measured on the same prompts, as
    in the paper."""


class Downstream(Settings):
    """avg@`rollouts_per_prompt` on another data set: exported next to the curve,
    never part of it.
    """

    dataset: Dataset
    """The set. Training prompts with the same text leave training."""
    rollouts_per_prompt: Annotated[int, Field(ge=1)] = 16
    """k of avg@k. NOT FOUND in the paper; 16 as in its validation."""
    num_prompts: Annotated[int, Field(ge=1)] | None = None
    """Use this many of its prompts, chosen by `evaluation.seed`. None = all."""
    every_steps: Annotated[int, Field(ge=1)] | None = None
    """Optimizer steps between two; one is also made before the first step and after the last. None
    = at every checkpoint (`trainer.checkpoint_every_steps`)."""


class Grading(Settings):
    """How completions are graded.

    Verifiers that run code of others work in processes of their own (docs/sandbox.md).
    """

    sandbox: Literal["strict", "gvisor", "unsafe", "remote"] = "strict"
    """`strict`: programs that the model wrote are run only if the kernel can contain them (seccomp,
    Landlock). `gvisor`: only if the kernel is gVisor's, whose Landlock is not asked for. `remote`:
    by the service that `grader` names. `unsafe`: with whatever the kernel offers, even nothing;
    only if another barrier surrounds the pod."""
    processes: Annotated[int, Field(ge=1, le=256)] = 4
    """Gradings that one generator runs concurrently. Each takes up to one core while it runs, so a
    number above the cores that the generator may use is reduced to them, and the gradings of one
    machine together are never more than its cores."""
    deadline_seconds: Annotated[float, Field(gt=0, le=3_600)] | None = None
    """Processor time of one grading. A program that is at work when it is used up has failed, an
    answer that takes `math` longer is wrong, and any other judge gives no verdict (`timeout`).
    Three times as much wall time is the backstop: whoever slept until then has failed likewise, and
    one that only waited for a core is not graded. A trusted verifier has this much wall time. None
    = 10, and for a program with many tests `seconds_per_test` for each of them, at most 50."""
    seconds_per_test: Annotated[float, Field(gt=0, le=3_600)] = 6.0
    """Processor time of one test of a program: a call, or a run with one input; beyond it the
    program has failed. Three times as much wall time is the backstop, as above. 6 as LiveCodeBench,
    which counts wall time."""
    memory_mib: Annotated[int, Field(ge=64)] = 1_024
    """Address space that each process of a grading may take in addition to its initial size."""

    def seconds_for(self, num_tests: float) -> float:
        """Deadline of a grading that runs this many tests of a program: 0 if it runs no tests,
        infinity if they cannot be counted beforehand."""
        if self.deadline_seconds is not None:
            return self.deadline_seconds
        # Starting an interpreter takes a second on a busy machine. The backstop of 50 s is less
        # than a generator's patience with a grader of its own (`grader.patience_seconds`).
        return max(10.0, min(num_tests * self.seconds_per_test, 50.0))

    @property
    def longest_seconds(self) -> float:
        """The most processor time that any grading may take."""
        return self.seconds_for(math.inf)

    @property
    def longest_wall_seconds(self) -> float:
        """The most time that passes until any grading has ended once it has started."""
        return backstop_seconds(self.longest_seconds)


class Tasks(Settings):
    dataset: Annotated[Dataset | Mixture, Field(discriminator="kind")] = ArithmeticDataset()
    """The training prompts; the evaluation's prompts are held out from it."""
    evaluation: Evaluation = Evaluation()
    """How the curve is measured."""
    downstream: Annotated[tuple[Downstream, ...], Field(max_length=64)] = ()
    """Other sets that are evaluated now and then."""
    verifiers: Annotated[tuple[VerifierSettings, ...], Field(max_length=64)] = ()
    """Verifiers that need settings of their own; data sets name them."""
    environments: Annotated[tuple[EnvironmentOfRun, ...], Field(max_length=64)] = ()
    """Environments in which prompts are answered over several turns; data sets, or their rows, name
    them."""
    prompt_format: PromptFormat = PromptFormat()
    """The text around every prompt."""
    grading: Grading = Grading()
    """How completions are graded."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The data trained on: the parts of the mixture, or the one data set."""
        return (
            self.dataset.parts
            if isinstance(self.dataset, Mixture)
            else (Part(dataset=self.dataset),)
        )

    def held_out_prompts(self, mixture_part: Part) -> int:
        """How many prompts of `mixture_part` are held out."""
        return (
            self.evaluation.num_prompts if mixture_part.held_out is None else mixture_part.held_out
        )

    @property
    def most_evaluation_rollouts(self) -> int:
        """Completions of the evaluation prompt that gets most of them."""
        return max(
            self.evaluation.rollouts_per_prompt,
            *(item.rollouts_per_prompt for item in self.downstream),
            1,
        )
