from rollcast.wire import rollout_pb2 as _rollout_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Tensor(_message.Message):
    __slots__ = ("name", "dtype", "shape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    dtype: str
    shape: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, name: _Optional[str] = ..., dtype: _Optional[str] = ..., shape: _Optional[_Iterable[int]] = ...) -> None: ...

class Bucket(_message.Message):
    __slots__ = ("tensors", "num_bytes")
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    tensors: _containers.RepeatedCompositeFieldContainer[Tensor]
    num_bytes: int
    def __init__(self, tensors: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., num_bytes: _Optional[int] = ...) -> None: ...

class Manifest(_message.Message):
    __slots__ = ("version", "buckets", "lm_head")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    LM_HEAD_FIELD_NUMBER: _ClassVar[int]
    version: _rollout_pb2.PolicyVersion
    buckets: _containers.RepeatedCompositeFieldContainer[Bucket]
    lm_head: str
    def __init__(self, version: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., buckets: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., lm_head: _Optional[str] = ...) -> None: ...

class Announce(_message.Message):
    __slots__ = ("generator", "version", "num_workers", "lm_head", "slots", "uncounted_seconds", "wire", "router_replay", "pulls", "key")
    GENERATOR_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    LM_HEAD_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    ROUTER_REPLAY_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    generator: str
    version: _rollout_pb2.PolicyVersion
    num_workers: int
    lm_head: str
    slots: int
    uncounted_seconds: float
    wire: int
    router_replay: bool
    pulls: bool
    key: bytes
    def __init__(self, generator: _Optional[str] = ..., version: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., num_workers: _Optional[int] = ..., lm_head: _Optional[str] = ..., slots: _Optional[int] = ..., uncounted_seconds: _Optional[float] = ..., wire: _Optional[int] = ..., router_replay: _Optional[bool] = ..., pulls: _Optional[bool] = ..., key: _Optional[bytes] = ...) -> None: ...

class Presence(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    def __init__(self, key: _Optional[bytes] = ...) -> None: ...

class Noted(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("engine_steps", "running_rollouts", "decode_tokens_per_second", "draining", "applying")
    ENGINE_STEPS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_ROLLOUTS_FIELD_NUMBER: _ClassVar[int]
    DECODE_TOKENS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    APPLYING_FIELD_NUMBER: _ClassVar[int]
    engine_steps: int
    running_rollouts: int
    decode_tokens_per_second: float
    draining: bool
    applying: bool
    def __init__(self, engine_steps: _Optional[int] = ..., running_rollouts: _Optional[int] = ..., decode_tokens_per_second: _Optional[float] = ..., draining: _Optional[bool] = ..., applying: _Optional[bool] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("version", "epoch", "receive_seconds", "pause_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: _rollout_pb2.PolicyVersion
    epoch: int
    receive_seconds: float
    pause_seconds: float
    def __init__(self, version: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., epoch: _Optional[int] = ..., receive_seconds: _Optional[float] = ..., pause_seconds: _Optional[float] = ...) -> None: ...

class Joined(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Failed(_message.Message):
    __slots__ = ("epoch", "version", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    version: _rollout_pb2.PolicyVersion
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., version: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., reason: _Optional[str] = ...) -> None: ...

class FromGenerator(_message.Message):
    __slots__ = ("announce", "heartbeat", "acknowledge", "joined", "failed", "leaving")
    ANNOUNCE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    announce: Announce
    heartbeat: Heartbeat
    acknowledge: Acknowledge
    joined: Joined
    failed: Failed
    leaving: Leaving
    def __init__(self, announce: _Optional[_Union[Announce, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., joined: _Optional[_Union[Joined, _Mapping]] = ..., failed: _Optional[_Union[Failed, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ...) -> None: ...

class Leaving(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("epoch", "backend", "store_host", "store_port", "rank", "world_size", "timeout_seconds", "store_prefix", "lanes", "opening_timeout_seconds")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    STORE_HOST_FIELD_NUMBER: _ClassVar[int]
    STORE_PORT_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STORE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    OPENING_TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    backend: str
    store_host: str
    store_port: int
    rank: int
    world_size: int
    timeout_seconds: float
    store_prefix: str
    lanes: int
    opening_timeout_seconds: float
    def __init__(self, epoch: _Optional[int] = ..., backend: _Optional[str] = ..., store_host: _Optional[str] = ..., store_port: _Optional[int] = ..., rank: _Optional[int] = ..., world_size: _Optional[int] = ..., timeout_seconds: _Optional[float] = ..., store_prefix: _Optional[str] = ..., lanes: _Optional[int] = ..., opening_timeout_seconds: _Optional[float] = ...) -> None: ...

class Publish(_message.Message):
    __slots__ = ("epoch", "manifest", "stored")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    manifest: Manifest
    stored: _containers.RepeatedCompositeFieldContainer[StoredVersion]
    def __init__(self, epoch: _Optional[int] = ..., manifest: _Optional[_Union[Manifest, _Mapping]] = ..., stored: _Optional[_Iterable[_Union[StoredVersion, _Mapping]]] = ...) -> None: ...

class StoredVersion(_message.Message):
    __slots__ = ("version", "base", "objects")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    version: _rollout_pb2.PolicyVersion
    base: _rollout_pb2.PolicyVersion
    objects: _containers.RepeatedCompositeFieldContainer[StoredObject]
    def __init__(self, version: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., base: _Optional[_Union[_rollout_pb2.PolicyVersion, _Mapping]] = ..., objects: _Optional[_Iterable[_Union[StoredObject, _Mapping]]] = ...) -> None: ...

class StoredObject(_message.Message):
    __slots__ = ("name", "num_bytes", "index_bytes", "index_checksum", "rows_checksum")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_BYTES_FIELD_NUMBER: _ClassVar[int]
    INDEX_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ROWS_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_bytes: int
    index_bytes: int
    index_checksum: int
    rows_checksum: int
    def __init__(self, name: _Optional[str] = ..., num_bytes: _Optional[int] = ..., index_bytes: _Optional[int] = ..., index_checksum: _Optional[int] = ..., rows_checksum: _Optional[int] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class HandOver(_message.Message):
    __slots__ = ("sequences",)
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    sequences: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, sequences: _Optional[_Iterable[int]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("incarnation", "history", "wire")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    WIRE_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    history: _containers.RepeatedCompositeFieldContainer[SurvivingIncarnation]
    wire: int
    def __init__(self, incarnation: _Optional[int] = ..., history: _Optional[_Iterable[_Union[SurvivingIncarnation, _Mapping]]] = ..., wire: _Optional[int] = ...) -> None: ...

class SurvivingIncarnation(_message.Message):
    __slots__ = ("incarnation", "last_step")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LAST_STEP_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    last_step: int
    def __init__(self, incarnation: _Optional[int] = ..., last_step: _Optional[int] = ...) -> None: ...

class FromTrainer(_message.Message):
    __slots__ = ("welcome", "join", "publish", "leave", "hand_over")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    JOIN_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    HAND_OVER_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    join: Join
    publish: Publish
    leave: Leave
    hand_over: HandOver
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., join: _Optional[_Union[Join, _Mapping]] = ..., publish: _Optional[_Union[Publish, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., hand_over: _Optional[_Union[HandOver, _Mapping]] = ...) -> None: ...
