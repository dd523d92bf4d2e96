"""The vocabulary of wire 1. Positions are counted in the completion: token 0 is the first sampled
one.

Example: a completion of 6 tokens whose thinking was cut after 3, with a phrase of 1 token, an
update after 4:

    token_ids      [t0 t1 t2 ph t4 t5]
    logprobs       [ .  .  .  0  .  .]      0 where forced
    legs           thinking [0,3)  phrase [3,4)  answer [4,6)
    loss_masked    [3,4)                    no loss on the phrase
    version_spans  1.7 [0,4)  1.8 [4,6)     the phrase counts to the version that was held when
                                            it was forced
    kv_marks       position 4, kept 32, 1.8: before token 4 was sampled, KV entries from the 33rd
                   token on (prompt included) were rebuilt

An episode of two turns, the second of which begins again with the tool's result in a prompt of its
own (a branch):

    token_ids      [t0 t1 g2 g3 t4 t5]                  branches[0].token_ids  [t0 t1]
    legs           answer [0,2)  given [2,4)  answer [4,6)                     answer [0,2)
    loss_masked    [2,4)
    turns          sequence 0 [0,2)   sequence 0 [4,6)   sequence 1 [0,2)
"""

from collections.abc import Mapping
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
    """`ok` and `wrong` are verdicts.

    A grader that failed has given none, which is not a wrong answer.
    """

    UNGRADED = "ungraded"
    OK = "ok"
    """The reward is above 0."""
    WRONG = "wrong"
    """The reward is 0. So is that of a program that crashed, or ran into its time limit."""
    TIMEOUT = "timeout"
    """No verdict: the judge or the parser hung."""
    ERROR = "error"
    """No verdict: the grader died, or was never reached."""


class EpisodeEnd(StrEnum):
    """Why an episode ended."""

    RUNNING = "running"
    ANSWERED = "answered"
    """The model's last turn called no tool."""
    DONE = "done"
    """The environment ended it."""
    TOKENS = "tokens"
    """The budget of tokens ran out: truncated."""
    TURNS = "turns"
    """The budget of turns ran out: truncated."""
    SECONDS = "seconds"
    """The budget of seconds ran out: truncated."""
    FAILED = "failed"
    """The environment failed and was given up: the rollout has no verdict."""


class StopReason(StrEnum):
    RUNNING = "running"
    END = "end"
    LENGTH = "length"
    """The budget ran out: the rollout is truncated."""


class LegKind(StrEnum):
    THINKING = "thinking"
    INTERRUPTION_PHRASE = "phrase"
    ANSWER = "answer"
    GIVEN = "given"
    """Not sampled: the result of a tool or a turn of the user, in the template's text. No loss,
    log-prob 0."""


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
    """Before the token at `position` was sampled, KV entries from `num_kept` on (prompt included)
    were rebuilt.
    """

    position: int
    num_kept: int
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


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of the model in an episode, and what the environment answered."""

    sequence: int
    """0 = the rollout's own tokens, n = `Episode.branches[n - 1]`."""
    start: int
    """Position of its first sampled token in that sequence."""
    end: int
    reward: float = 0.0
    """The environment's reward for this turn alone."""
    tool_calls: int = 0
    malformed_calls: int = 0
    """Calls that could not be read, of tools that do not exist, or with wrong arguments."""
    environment_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class Branch:
    """A further token sequence of an episode, whose tokens do not extend those of the sequence
    before.
    """

    prompt_token_ids: TokenIds
    """[P] int32: everything that was given before its first sampled token."""
    token_ids: TokenIds
    """[L] int32."""
    logprobs: Logprobs
    """[L] float32; 0 where given or forced."""
    version_spans: tuple[VersionSpan, ...] = ()
    loss_masked: tuple[tuple[int, int], ...] = ()
    legs: tuple[Leg, ...] = ()
    kv_marks: tuple[KvMark, ...] = ()
    routed_experts: RoutedExperts | None = None
    """[P + L - 1, routing layers, choices] uint8. None = not recorded."""


@dataclass(slots=True, eq=False)
class Episode:
    """The parts of a rollout in an environment besides its tokens."""

    environment: str
    prompt_token_ids: TokenIds | None = None
    """[P] int32 of the first sequence. None = the task's prompt: the environment's reset added
    nothing to it."""
    turns: tuple[Turn, ...] = ()
    branches: tuple[Branch, ...] = ()
    end: EpisodeEnd = EpisodeEnd.RUNNING
    reason: str = ""
    """Why the environment failed; empty = it has not."""
    environment_seconds: float = 0.0
    """Set-up, tool calls and reward."""
    sampling_seconds: float = 0.0
    restarts: int = 0
    """How often it began again because its environment failed."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The environment's own numbers of it, within the bounds of `environment_metrics`."""


@dataclass(frozen=True, slots=True)
class EpisodeTask:
    """The parts of a task in an environment besides its prompt.

    `PromptTask.reference` is the whole row.
    """

    environment: str
    messages: str
    """JSON text: the chat before the environment's reset, a list of {role, content}."""
    max_turns: int
    max_seconds: float
    answer: str = ""
    """JSON text that a built-in verifier compares with. Empty = a verifier gets the whole row, or
    none rewards."""


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
    """[P + L - 1, routing layers, choices] uint8: the routers' choices for all tokens of prompt and
    completion except the last, which is never an input. None = not recorded.

    An answer's leg computes part of its thinking again: its second choices count, because the
    answer saw them. For a rollout that went on at another generator the choices of each token's
    first computation count."""
    episode: Episode | None = None
    """Turns, and sequences after the first, of a rollout in an environment. None = one answer,
    without tools."""

    @property
    def sequences(self) -> "tuple[Rollout | Branch, ...]":
        """The token sequences: its own tokens, then the branches of its episode."""
        return (self, *self.episode.branches) if self.episode else (self,)

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences that the generator sampled or forced: not what an environment
        gave.
        """
        if self.episode is None:
            return len(self.token_ids)
        return sum(
            len(sequence.token_ids) - _num_given(sequence.legs) for sequence in self.sequences
        )

    @property
    def has_verdict(self) -> bool:
        return self.grading_status in (GradingStatus.OK, GradingStatus.WRONG)

    @property
    def truncated(self) -> bool:
        return self.stop_reason is StopReason.LENGTH

    @property
    def versions(self) -> frozenset[PolicyVersion]:
        """Versions of the tokens of all sequences."""
        return frozenset(
            span.version for sequence in self.sequences for span in sequence.version_spans
        )

    @property
    def oldest_version(self) -> PolicyVersion | None:
        return min(self.versions, default=None)

    def sequence_prompt(self, sequence: "Rollout | Branch", task_prompt: TokenIds) -> TokenIds:
        """[P] what one of its sequences was sampled after; `task_prompt` is the prompt
        of its task.
        """
        if isinstance(sequence, Branch):
            return sequence.prompt_token_ids
        episode_prompt = self.episode.prompt_token_ids if self.episode else None
        return task_prompt if episode_prompt is None else episode_prompt


def loss_mask(sequence: Rollout | Branch) -> NDArray[np.bool_]:
    """Return [L] of one token sequence, False on the forced and on the given tokens."""
    mask = np.ones(len(sequence.token_ids), dtype=np.bool_)
    for start, end in sequence.loss_masked:
        mask[start:end] = False
    return mask


def _num_given(legs: tuple[Leg, ...]) -> int:
    return sum(leg.end - leg.start for leg in legs if leg.kind is LegKind.GIVEN)


@dataclass(slots=True, eq=False, kw_only=True)
class DispatchedPrompt:
    """Fields that a group copies from its task."""

    sequence: int
    """The task's id."""
    incarnation: int
    """The incarnation of the trainer that dispatched it."""
    purpose: Purpose
    dataset: str
    prompt_id: str
    prompt_token_ids: TokenIds
    sampling: Sampling
    length: LengthBudget
    eval_step: int = 0
    """Purpose eval: the trainer's step when it was asked for."""
    attempt: int = 0
    """Failures so far; hand-backs do not count."""
    hand_backs: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class PromptTask(DispatchedPrompt):
    """One prompt to be answered `num_rollouts` times."""

    num_rollouts: int
    verifier: str
    """Empty = the environment rewards."""
    reference: str
    """JSON text that the verifier compares with; of a task in an environment the whole row."""
    first_version: PolicyVersion | None = None
    """First version of the rollouts handed back; None = no token yet."""
    rollouts: list[Rollout] = field(default_factory=list)
    """Handed back by a former owner, finished or to be continued."""
    episode: EpisodeTask | None = None
    """Environment and budgets. None = one answer, without tools."""

    @property
    def verifier_reference(self) -> str:
        """JSON text that its verifier gets."""
        return (self.episode.answer if self.episode else "") or self.reference


@dataclass(slots=True, eq=False, kw_only=True, weakref_slot=True)
class RolloutGroup(DispatchedPrompt):
    """The finished rollouts of one task: the unit on the queue, of filtering and of advantage."""

    rollouts: list[Rollout]
    first_version: PolicyVersion
    generator: str
    started_at: float = 0.0
    """Unix seconds."""
    finished_at: float = 0.0

    @property
    def versions(self) -> frozenset[PolicyVersion]:
        return frozenset(version for rollout in self.rollouts for version in rollout.versions)

    @property
    def num_tokens(self) -> int:
        """Sampled and forced tokens."""
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
