from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GradingLimits(_message.Message):
    __slots__ = ("deadline_seconds", "seconds_per_test", "memory_mib")
    DEADLINE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_PER_TEST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MIB_FIELD_NUMBER: _ClassVar[int]
    deadline_seconds: float
    seconds_per_test: float
    memory_mib: int
    def __init__(self, deadline_seconds: _Optional[float] = ..., seconds_per_test: _Optional[float] = ..., memory_mib: _Optional[int] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("verifiers", "limits")
    VERIFIERS_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    verifiers: _containers.RepeatedScalarFieldContainer[str]
    limits: GradingLimits
    def __init__(self, verifiers: _Optional[_Iterable[str]] = ..., limits: _Optional[_Union[GradingLimits, _Mapping]] = ...) -> None: ...

class CheckReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GradeRequest(_message.Message):
    __slots__ = ("verifier", "completion", "reference", "limits")
    VERIFIER_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    verifier: str
    completion: bytes
    reference: bytes
    limits: GradingLimits
    def __init__(self, verifier: _Optional[str] = ..., completion: _Optional[bytes] = ..., reference: _Optional[bytes] = ..., limits: _Optional[_Union[GradingLimits, _Mapping]] = ...) -> None: ...

class GradeReply(_message.Message):
    __slots__ = ("reward", "status", "reason", "failure")
    REWARD_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    reward: float
    status: str
    reason: str
    failure: str
    def __init__(self, reward: _Optional[float] = ..., status: _Optional[str] = ..., reason: _Optional[str] = ..., failure: _Optional[str] = ...) -> None: ...
