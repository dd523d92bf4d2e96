from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Point(_message.Message):
    __slots__ = ("compute_device_hours", "pass_rate", "standard_error", "truncation_ratio")
    COMPUTE_DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    PASS_RATE_FIELD_NUMBER: _ClassVar[int]
    STANDARD_ERROR_FIELD_NUMBER: _ClassVar[int]
    TRUNCATION_RATIO_FIELD_NUMBER: _ClassVar[int]
    compute_device_hours: float
    pass_rate: float
    standard_error: float
    truncation_ratio: float
    def __init__(self, compute_device_hours: _Optional[float] = ..., pass_rate: _Optional[float] = ..., standard_error: _Optional[float] = ..., truncation_ratio: _Optional[float] = ...) -> None: ...

class FitRequest(_message.Message):
    __slots__ = ("points", "initial", "exclude_before", "num_prompts")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    INITIAL_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    NUM_PROMPTS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[Point]
    initial: float
    exclude_before: float
    num_prompts: int
    def __init__(self, points: _Optional[_Iterable[_Union[Point, _Mapping]]] = ..., initial: _Optional[float] = ..., exclude_before: _Optional[float] = ..., num_prompts: _Optional[int] = ...) -> None: ...

class Interval(_message.Message):
    __slots__ = ("quantile_05", "quantile_25", "quantile_50", "quantile_75", "quantile_95")
    QUANTILE_05_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_25_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_50_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_75_FIELD_NUMBER: _ClassVar[int]
    QUANTILE_95_FIELD_NUMBER: _ClassVar[int]
    quantile_05: float
    quantile_25: float
    quantile_50: float
    quantile_75: float
    quantile_95: float
    def __init__(self, quantile_05: _Optional[float] = ..., quantile_25: _Optional[float] = ..., quantile_50: _Optional[float] = ..., quantile_75: _Optional[float] = ..., quantile_95: _Optional[float] = ...) -> None: ...

class ForecastReply(_message.Message):
    __slots__ = ("run", "num_points", "verdict", "reason", "asymptote", "exponent", "midpoint_device_hours", "headroom", "compute_device_hours", "pass_rate")
    RUN_FIELD_NUMBER: _ClassVar[int]
    NUM_POINTS_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ASYMPTOTE_FIELD_NUMBER: _ClassVar[int]
    EXPONENT_FIELD_NUMBER: _ClassVar[int]
    MIDPOINT_DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    PASS_RATE_FIELD_NUMBER: _ClassVar[int]
    run: str
    num_points: int
    verdict: str
    reason: str
    asymptote: Interval
    exponent: Interval
    midpoint_device_hours: Interval
    headroom: Interval
    compute_device_hours: float
    pass_rate: float
    def __init__(self, run: _Optional[str] = ..., num_points: _Optional[int] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ..., asymptote: _Optional[_Union[Interval, _Mapping]] = ..., exponent: _Optional[_Union[Interval, _Mapping]] = ..., midpoint_device_hours: _Optional[_Union[Interval, _Mapping]] = ..., headroom: _Optional[_Union[Interval, _Mapping]] = ..., compute_device_hours: _Optional[float] = ..., pass_rate: _Optional[float] = ...) -> None: ...

class PredictRequest(_message.Message):
    __slots__ = ("run", "compute_device_hours")
    RUN_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    run: str
    compute_device_hours: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, run: _Optional[str] = ..., compute_device_hours: _Optional[_Iterable[float]] = ...) -> None: ...

class Prediction(_message.Message):
    __slots__ = ("compute_device_hours", "pass_rate")
    COMPUTE_DEVICE_HOURS_FIELD_NUMBER: _ClassVar[int]
    PASS_RATE_FIELD_NUMBER: _ClassVar[int]
    compute_device_hours: float
    pass_rate: Interval
    def __init__(self, compute_device_hours: _Optional[float] = ..., pass_rate: _Optional[_Union[Interval, _Mapping]] = ...) -> None: ...

class PredictReply(_message.Message):
    __slots__ = ("predictions",)
    PREDICTIONS_FIELD_NUMBER: _ClassVar[int]
    predictions: _containers.RepeatedCompositeFieldContainer[Prediction]
    def __init__(self, predictions: _Optional[_Iterable[_Union[Prediction, _Mapping]]] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("run",)
    RUN_FIELD_NUMBER: _ClassVar[int]
    run: str
    def __init__(self, run: _Optional[str] = ...) -> None: ...
