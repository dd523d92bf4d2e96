"""The vocabulary of wire 1. Positions are counted in the completion: token 0 is the first sampled one.

Example: a completion of 6 tokens whose thinking was cut after 3, with a phrase of 1 token, an update after 4:

    token_ids      [t0 t1 t2 ph t4 t5]
    logprobs       [ .  .  .  0  .  .]      0 where forced
    legs           thinking [0,3)  phrase [3,4)  answer [4,6)
    loss_masked    [3,4)                    no loss on the phrase
    version_spans  1.7 [0,4)  1.8 [4,6)     the phrase counts to the version that was held when it was forced
    kv_marks       position 4, kept 32, 1.8: before token 4 was sampled, KV entries from the 33rd token on (prompt
                   included) were rebuilt
"""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from rollcast.wire.version import PolicyVersion

TokenIds = NDArray[np.int32]
Logprobs = NDArray[np.float32]
RoutedExperts = NDArray[np.uint8]


class Purpose(StrEnum):
    TRAIN = "train"
    EVAL = "eval"


class GradingStatus(StrEnum):
    """`ok` and `wrong` are verdicts. A grader that failed has given none, which is not a wrong answer."""

    UNGRADED = "ungraded"
    OK = "ok"
    """The reward is above 0."""
    WRONG = "wrong"
    """The reward is 0. So is that of a program that crashed, or ran into its time limit."""
    TIMEOUT = "timeout"
    """No verdict: the judge or the parser hung."""
    ERROR = "error"
    """No verdict: the grader died, or was never reached."""


class StopReason(StrEnum):
    RUNNING = "running"
    END = "end"
    LENGTH = "length"
    """The budget ran out: the rollout is truncated."""


class LegKind(StrEnum):
    THINKING = "thinking"
    PHRASE = "phrase"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Tokens [start, end) were sampled by `version`."""

    version: PolicyVersion
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Leg:
    kind: LegKind
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class KvMark:
    """Before the token at `position` was sampled, KV entries from `kept` on (prompt included) were rebuilt."""

    position: int
    kept: int
    version: PolicyVersion


@dataclass(frozen=True, slots=True)
class Sampling:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """0 = off."""
    seed: int = 0
    """0 = unseeded."""


@dataclass(frozen=True, slots=True)
class LengthBudget:
    """Budgets of one completion, in tokens."""

    max_tokens: int
    interrupt_from: int = 0
    """0 = thinking is never cut."""
    interrupt_to: int = 0
    answer_tokens: int = 0
    phrase: tuple[int, ...] = ()
    end_of_thinking: tuple[int, ...] = ()
    seed: int = 0
    """Seeds the draw of the cut's position, together with task sequence and rollout index."""


@dataclass(slots=True, eq=False)
class Rollout:
    """One completion. Not graded and `partial` until it has ended."""

    index: int
    """0..G-1 in its group."""
    token_ids: TokenIds
    """[L] int32."""
    logprobs: Logprobs
    """[L] float32 of the behaviour policy; 0 for forced tokens."""
    version_spans: tuple[VersionSpan, ...] = ()
    loss_masked: tuple[tuple[int, int], ...] = ()
    """Token ranges [start, end) that carry no loss."""
    legs: tuple[Leg, ...] = ()
    kv_marks: tuple[KvMark, ...] = ()
    partial: bool = False
    stop_reason: StopReason = StopReason.RUNNING
    reward: float = 0.0
    grading_status: GradingStatus = GradingStatus.UNGRADED
    grading_seconds: float = 0.0
    interrupted: bool = False
    preemptions: int = 0
    routed_experts: RoutedExperts | None = None
    """[P + L - 1, routing layers, choices] uint8: the routers' choices for all tokens of prompt and completion except
    the last, which is never an input. None = not recorded.

    An answer's leg computes part of its thinking again: its second choices count, because the answer saw them. For a
    rollout that went on at another generator the choices of each token's first computation count."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def has_verdict(self) -> bool:
        return self.grading_status in (GradingStatus.OK, GradingStatus.WRONG)

    @property
    def truncated(self) -> bool:
        return self.stop_reason is StopReason.LENGTH

    @property
    def oldest_version(self) -> PolicyVersion | None:
        return min((span.version for span in self.version_spans), default=None)


@dataclass(slots=True, eq=False)
class PromptTask:
    """One prompt to be answered `num_rollouts` times. `sequence` is its id."""

    sequence: int
    incarnation: int
    """The incarnation of the trainer that dispatched it."""
    purpose: Purpose
    dataset: str
    prompt_id: str
    prompt_token_ids: TokenIds
    num_rollouts: int
    sampling: Sampling
    length: LengthBudget
    verifier: str
    reference: str
    """JSON text that the verifier compares with."""
    eval_step: int = 0
    """Purpose eval: the trainer's step when it was asked for."""
    attempt: int = 0
    """Failures so far; hand-backs do not count."""
    hand_backs: int = 0
    first_version: PolicyVersion | None = None
    """First version of the rollouts handed back; None = no token yet."""
    rollouts: list[Rollout] = field(default_factory=list)
    """Handed back by a former owner, finished or to be continued."""


@dataclass(slots=True, eq=False)
class RolloutGroup:
    """The finished rollouts of one task: the unit on the queue, of filtering and of advantage."""

    sequence: int
    attempt: int
    incarnation: int
    purpose: Purpose
    dataset: str
    prompt_id: str
    prompt_token_ids: TokenIds
    sampling: Sampling
    length: LengthBudget
    rollouts: list[Rollout]
    first_version: PolicyVersion
    generator: str
    eval_step: int = 0
    started_at: float = 0.0
    """Unix seconds."""
    finished_at: float = 0.0
    hand_backs: int = 0

    @property
    def versions(self) -> frozenset[PolicyVersion]:
        return frozenset(span.version for rollout in self.rollouts for span in rollout.version_spans)

    @property
    def num_tokens(self) -> int:
        return sum(rollout.num_tokens for rollout in self.rollouts)


@dataclass(frozen=True, slots=True)
class Claim:
    """An entry of :inflight: the owner of a task, and the version at its claim."""

    owner: str
    first_version: PolicyVersion
    attempt: int
    stream_id: str
    claimed_at: float
    purpose: Purpose
