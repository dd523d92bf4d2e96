from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Purpose(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PURPOSE_UNSPECIFIED: _ClassVar[Purpose]
    PURPOSE_TRAIN: _ClassVar[Purpose]
    PURPOSE_EVAL: _ClassVar[Purpose]

class GradingStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GRADING_STATUS_UNSPECIFIED: _ClassVar[GradingStatus]
    GRADING_STATUS_OK: _ClassVar[GradingStatus]
    GRADING_STATUS_WRONG: _ClassVar[GradingStatus]
    GRADING_STATUS_TIMEOUT: _ClassVar[GradingStatus]
    GRADING_STATUS_ERROR: _ClassVar[GradingStatus]

class StopReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STOP_REASON_UNSPECIFIED: _ClassVar[StopReason]
    STOP_REASON_END: _ClassVar[StopReason]
    STOP_REASON_LENGTH: _ClassVar[StopReason]

class LegKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEG_KIND_UNSPECIFIED: _ClassVar[LegKind]
    LEG_KIND_THINKING: _ClassVar[LegKind]
    LEG_KIND_PHRASE: _ClassVar[LegKind]
    LEG_KIND_ANSWER: _ClassVar[LegKind]
    LEG_KIND_GIVEN: _ClassVar[LegKind]

class EpisodeEnd(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EPISODE_END_UNSPECIFIED: _ClassVar[EpisodeEnd]
    EPISODE_END_ANSWERED: _ClassVar[EpisodeEnd]
    EPISODE_END_DONE: _ClassVar[EpisodeEnd]
    EPISODE_END_TOKENS: _ClassVar[EpisodeEnd]
    EPISODE_END_TURNS: _ClassVar[EpisodeEnd]
    EPISODE_END_SECONDS: _ClassVar[EpisodeEnd]
    EPISODE_END_FAILED: _ClassVar[EpisodeEnd]
PURPOSE_UNSPECIFIED: Purpose
PURPOSE_TRAIN: Purpose
PURPOSE_EVAL: Purpose
GRADING_STATUS_UNSPECIFIED: GradingStatus
GRADING_STATUS_OK: GradingStatus
GRADING_STATUS_WRONG: GradingStatus
GRADING_STATUS_TIMEOUT: GradingStatus
GRADING_STATUS_ERROR: GradingStatus
STOP_REASON_UNSPECIFIED: StopReason
STOP_REASON_END: StopReason
STOP_REASON_LENGTH: StopReason
LEG_KIND_UNSPECIFIED: LegKind
LEG_KIND_THINKING: LegKind
LEG_KIND_PHRASE: LegKind
LEG_KIND_ANSWER: LegKind
LEG_KIND_GIVEN: LegKind
EPISODE_END_UNSPECIFIED: EpisodeEnd
EPISODE_END_ANSWERED: EpisodeEnd
EPISODE_END_DONE: EpisodeEnd
EPISODE_END_TOKENS: EpisodeEnd
EPISODE_END_TURNS: EpisodeEnd
EPISODE_END_SECONDS: EpisodeEnd
EPISODE_END_FAILED: EpisodeEnd

class PolicyVersion(_message.Message):
    __slots__ = ("incarnation", "step")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    step: int
    def __init__(self, incarnation: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...

class SamplingParameters(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class LengthControl(_message.Message):
    __slots__ = ("max_tokens", "interrupt_from", "interrupt_to", "answer_tokens", "phrase_token_ids", "end_of_thinking_token_ids", "seed")
    MAX_TOKENS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_FROM_FIELD_NUMBER: _ClassVar[int]
    INTERRUPT_TO_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PHRASE_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    END_OF_THINKING_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    max_tokens: int
    interrupt_from: int
    interrupt_to: int
    answer_tokens: int
    phrase_token_ids: bytes
    end_of_thinking_token_ids: bytes
    seed: int
    def __init__(self, max_tokens: _Optional[int] = ..., interrupt_from: _Optional[int] = ..., interrupt_to: _Optional[int] = ..., answer_tokens: _Optional[int] = ..., phrase_token_ids: _Optional[bytes] = ..., end_of_thinking_token_ids: _Optional[bytes] = ..., seed: _Optional[int] = ...) -> None: ...

class VersionSpan(_message.Message):
    __slots__ = ("version", "start", "end")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    version: PolicyVersion
    start: int
    end: int
    def __init__(self, version: _Optional[_Union[PolicyVersion, _Mapping]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class TokenSpan(_message.Message):
    __slots__ = ("start", "end")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    start: int
    end: int
    def __init__(self, start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class Leg(_message.Message):
    __slots__ = ("kind", "start", "end")
    KIND_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    kind: LegKind
    start: int
    end: int
    def __init__(self, kind: _Optional[_Union[LegKind, str]] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class KvMark(_message.Message):
    __slots__ = ("position", "kept", "version")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    position: int
    kept: int
    version: PolicyVersion
    def __init__(self, position: _Optional[int] = ..., kept: _Optional[int] = ..., version: _Optional[_Union[PolicyVersion, _Mapping]] = ...) -> None: ...

class RoutedExperts(_message.Message):
    __slots__ = ("experts", "layers", "choices")
    EXPERTS_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    experts: bytes
    layers: int
    choices: int
    def __init__(self, experts: _Optional[bytes] = ..., layers: _Optional[int] = ..., choices: _Optional[int] = ...) -> None: ...

class Turn(_message.Message):
    __slots__ = ("sequence", "start", "end", "reward", "tool_calls", "malformed_calls", "environment_seconds")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    TOOL_CALLS_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_CALLS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    start: int
    end: int
    reward: float
    tool_calls: int
    malformed_calls: int
    environment_seconds: float
    def __init__(self, sequence: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., reward: _Optional[float] = ..., tool_calls: _Optional[int] = ..., malformed_calls: _Optional[int] = ..., environment_seconds: _Optional[float] = ...) -> None: ...

class Branch(_message.Message):
    __slots__ = ("prompt_token_ids", "token_ids", "logprobs", "version_spans", "loss_mask_spans", "legs", "kv_marks", "routed_experts")
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_SPANS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    KV_MARKS_FIELD_NUMBER: _ClassVar[int]
    ROUTED_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    prompt_token_ids: bytes
    token_ids: bytes
    logprobs: bytes
    version_spans: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    loss_mask_spans: _containers.RepeatedCompositeFieldContainer[TokenSpan]
    legs: _containers.RepeatedCompositeFieldContainer[Leg]
    kv_marks: _containers.RepeatedCompositeFieldContainer[KvMark]
    routed_experts: RoutedExperts
    def __init__(self, prompt_token_ids: _Optional[bytes] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., version_spans: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., loss_mask_spans: _Optional[_Iterable[_Union[TokenSpan, _Mapping]]] = ..., legs: _Optional[_Iterable[_Union[Leg, _Mapping]]] = ..., kv_marks: _Optional[_Iterable[_Union[KvMark, _Mapping]]] = ..., routed_experts: _Optional[_Union[RoutedExperts, _Mapping]] = ...) -> None: ...

class EnvironmentMetric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...

class Episode(_message.Message):
    __slots__ = ("environment", "prompt_token_ids", "turns", "branches", "end", "reason", "environment_seconds", "sampling_seconds", "restarts", "metrics")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    environment: str
    prompt_token_ids: bytes
    turns: _containers.RepeatedCompositeFieldContainer[Turn]
    branches: _containers.RepeatedCompositeFieldContainer[Branch]
    end: EpisodeEnd
    reason: str
    environment_seconds: float
    sampling_seconds: float
    restarts: int
    metrics: _containers.RepeatedCompositeFieldContainer[EnvironmentMetric]
    def __init__(self, environment: _Optional[str] = ..., prompt_token_ids: _Optional[bytes] = ..., turns: _Optional[_Iterable[_Union[Turn, _Mapping]]] = ..., branches: _Optional[_Iterable[_Union[Branch, _Mapping]]] = ..., end: _Optional[_Union[EpisodeEnd, str]] = ..., reason: _Optional[str] = ..., environment_seconds: _Optional[float] = ..., sampling_seconds: _Optional[float] = ..., restarts: _Optional[int] = ..., metrics: _Optional[_Iterable[_Union[EnvironmentMetric, _Mapping]]] = ...) -> None: ...

class EpisodeTask(_message.Message):
    __slots__ = ("environment", "messages", "max_turns", "max_seconds", "answer")
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_TURNS_FIELD_NUMBER: _ClassVar[int]
    MAX_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    environment: str
    messages: bytes
    max_turns: int
    max_seconds: float
    answer: bytes
    def __init__(self, environment: _Optional[str] = ..., messages: _Optional[bytes] = ..., max_turns: _Optional[int] = ..., max_seconds: _Optional[float] = ..., answer: _Optional[bytes] = ...) -> None: ...

class Rollout(_message.Message):
    __slots__ = ("index", "token_ids", "logprobs", "version_spans", "loss_mask_spans", "legs", "kv_marks", "partial", "stop_reason", "reward", "grading_status", "grading_seconds", "interrupted", "preemptions", "routed_experts", "episode")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    VERSION_SPANS_FIELD_NUMBER: _ClassVar[int]
    LOSS_MASK_SPANS_FIELD_NUMBER: _ClassVar[int]
    LEGS_FIELD_NUMBER: _ClassVar[int]
    KV_MARKS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    STOP_REASON_FIELD_NUMBER: _ClassVar[int]
    REWARD_FIELD_NUMBER: _ClassVar[int]
    GRADING_STATUS_FIELD_NUMBER: _ClassVar[int]
    GRADING_SECONDS_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    PREEMPTIONS_FIELD_NUMBER: _ClassVar[int]
    ROUTED_EXPERTS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    index: int
    token_ids: bytes
    logprobs: bytes
    version_spans: _containers.RepeatedCompositeFieldContainer[VersionSpan]
    loss_mask_spans: _containers.RepeatedCompositeFieldContainer[TokenSpan]
    legs: _containers.RepeatedCompositeFieldContainer[Leg]
    kv_marks: _containers.RepeatedCompositeFieldContainer[KvMark]
    partial: bool
    stop_reason: StopReason
    reward: float
    grading_status: GradingStatus
    grading_seconds: float
    interrupted: bool
    preemptions: int
    routed_experts: RoutedExperts
    episode: Episode
    def __init__(self, index: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., logprobs: _Optional[bytes] = ..., version_spans: _Optional[_Iterable[_Union[VersionSpan, _Mapping]]] = ..., loss_mask_spans: _Optional[_Iterable[_Union[TokenSpan, _Mapping]]] = ..., legs: _Optional[_Iterable[_Union[Leg, _Mapping]]] = ..., kv_marks: _Optional[_Iterable[_Union[KvMark, _Mapping]]] = ..., partial: _Optional[bool] = ..., stop_reason: _Optional[_Union[StopReason, str]] = ..., reward: _Optional[float] = ..., grading_status: _Optional[_Union[GradingStatus, str]] = ..., grading_seconds: _Optional[float] = ..., interrupted: _Optional[bool] = ..., preemptions: _Optional[int] = ..., routed_experts: _Optional[_Union[RoutedExperts, _Mapping]] = ..., episode: _Optional[_Union[Episode, _Mapping]] = ...) -> None: ...

class PromptTask(_message.Message):
    __slots__ = ("sequence", "attempt", "incarnation", "purpose", "dataset", "prompt_id", "prompt_token_ids", "num_rollouts", "sampling", "length_control", "verifier", "reference", "eval_step", "rollouts", "first_version", "hand_backs", "episode")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    PROMPT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    LENGTH_CONTROL_FIELD_NUMBER: _ClassVar[int]
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    EVAL_STEP_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_VERSION_FIELD_NUMBER: _ClassVar[int]
    HAND_BACKS_FIELD_NUMBER: _ClassVar[int]
    EPISODE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    attempt: int
    incarnation: int
    purpose: Purpose
    dataset: str
    prompt_id: str
    prompt_token_ids: bytes
    num_rollouts: int
    sampling: SamplingParameters
    length_control: LengthControl
    verifier: str
    reference: bytes
    eval_step: int
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    first_version: PolicyVersion
    hand_backs: int
    episode: EpisodeTask
    def __init__(self, sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., incarnation: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., dataset: _Optional[str] = ..., prompt_id: _Optional[str] = ..., prompt_token_ids: _Optional[bytes] = ..., num_rollouts: _Optional[int] = ..., sampling: _Optional[_Union[SamplingParameters, _Mapping]] = ..., length_control: _Optional[_Union[LengthControl, _Mapping]] = ..., verifier: _Optional[str] = ..., reference: _Optional[bytes] = ..., eval_step: _Optional[int] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ..., first_version: _Optional[_Union[PolicyVersion, _Mapping]] = ..., hand_backs: _Optional[int] = ..., episode: _Optional[_Union[EpisodeTask, _Mapping]] = ...) -> None: ...

class RolloutGroup(_message.Message):
    __slots__ = ("sequence", "attempt", "incarnation", "purpose", "dataset", "prompt_id", "prompt_token_ids", "num_rollouts", "sampling", "rollouts", "first_version", "generator", "eval_step", "started_at", "finished_at", "hand_backs", "length_control")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    PROMPT_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    NUM_ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_VERSION_FIELD_NUMBER: _ClassVar[int]
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    EVAL_STEP_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_FIELD_NUMBER: _ClassVar[int]
    HAND_BACKS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_CONTROL_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    attempt: int
    incarnation: int
    purpose: Purpose
    dataset: str
    prompt_id: str
    prompt_token_ids: bytes
    num_rollouts: int
    sampling: SamplingParameters
    rollouts: _containers.RepeatedCompositeFieldContainer[Rollout]
    first_version: PolicyVersion
    generator: str
    eval_step: int
    started_at: float
    finished_at: float
    hand_backs: int
    length_control: LengthControl
    def __init__(self, sequence: _Optional[int] = ..., attempt: _Optional[int] = ..., incarnation: _Optional[int] = ..., purpose: _Optional[_Union[Purpose, str]] = ..., dataset: _Optional[str] = ..., prompt_id: _Optional[str] = ..., prompt_token_ids: _Optional[bytes] = ..., num_rollouts: _Optional[int] = ..., sampling: _Optional[_Union[SamplingParameters, _Mapping]] = ..., rollouts: _Optional[_Iterable[_Union[Rollout, _Mapping]]] = ..., first_version: _Optional[_Union[PolicyVersion, _Mapping]] = ..., generator: _Optional[str] = ..., eval_step: _Optional[int] = ..., started_at: _Optional[float] = ..., finished_at: _Optional[float] = ..., hand_backs: _Optional[int] = ..., length_control: _Optional[_Union[LengthControl, _Mapping]] = ...) -> None: ...
