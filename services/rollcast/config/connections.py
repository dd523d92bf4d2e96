"""Settings of the connections between processes."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from rollcast.config.base import REDIS_SCOPE, Settings

Port = Annotated[int, Field(ge=0, le=65_535)]
Secret = Annotated[SecretStr, Field(min_length=1)]
"""An empty one would mean no authentication without saying so; null says it."""


class TLS(Settings):
    """Certificates of one connection; PEM files."""

    certificate_authority: Path | None = None
    """Verifies the peer. None = the system's authorities."""
    certificate: Path | None = None
    """Own certificate: needed by servers, and by clients if the peer requires one."""
    private_key: Path | None = None
    """Private key of the own certificate."""


class Redis(Settings):
    """Where wire 1 is."""

    host: str = "127.0.0.1"
    """Name or address of the server."""
    port: Port = 6379
    """TCP port. In local mode 0 = start an embedded server, also if host and port are left out. It
    listens on a Unix socket in the run folder; on a free port if the folder cannot hold one or if
    `host` is not a loopback address."""
    socket: Path | None = None
    """Unix socket of a server on this machine, used instead of host and port. None = TCP."""
    username: str | None = None
    """User name of Redis ACLs: docs/kubernetes.md has those of each role. None = the default user;
    for an embedded server generator. The environment variable ROLLCAST_REDIS_USERNAME, where set,
    wins."""
    password: Secret | None = None
    """None = no authentication; for an embedded server a random password of each start, in run.json
    of the run folder. The environment variable ROLLCAST_REDIS_PASSWORD, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Deadline of one command; a server away longer is waited for with back-off and reported."""
    scope: Annotated[str, Field(pattern=REDIS_SCOPE)] = ""
    """Put before the run's name in every key, so that runs of one name may share a server without
    sharing a queue. The chart sets NAMESPACE/RELEASE if Redis is not its own. Empty = the run's
    name alone, for a Redis that no one else uses."""
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 4 << 30
    """Bytes of rollouts not yet trained on above which no new task is dispatched
    (back-pressure)."""

    @property
    def is_embedded(self) -> bool:
        """Whether local mode starts the server."""
        return self.port == 0 and self.socket is None

    @property
    def place(self) -> str:
        """The socket, or host and port, in words."""
        return f"{self.host}:{self.port}" if self.socket is None else str(self.socket)


class Rpc(Settings):
    """The weight-sync service at trainer rank 0, as generators reach it."""

    host: str = "127.0.0.1"
    """Name or address of trainer rank 0."""
    port: Port = 7431
    """gRPC port. In local mode 0 = a free one, also if it is left out."""
    bind: str = "127.0.0.1"
    """Address the trainer listens on; 0.0.0.0 in a pod."""
    token: Secret | None = None
    """Shared secret that a generator presents. None = any peer is accepted; in local mode a random
    token of each start, in run.json of the run folder. ROLLCAST_RPC_TOKEN, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP."""


class Http(Settings):
    """/healthz, /readyz and /metrics of every service, and the forecaster's page and API."""

    bind: str = "127.0.0.1"
    """Address that trainer and generators listen on; 0.0.0.0 in a pod. The forecaster has its
    own."""
    token: Secret | None = None
    """Shared secret for every path except the probes /healthz, /startz and /readyz: a bearer token,
    in a browser the password. None = no secret is needed. ROLLCAST_HTTP_TOKEN, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP. The certificate names the address bound, or 127.0.0.1 if every address is
    bound; callers are known by the token alone, because probes and browsers hold no certificate."""


class WeightStore(Settings):
    """Where versions are written with weights.transport = store."""

    location: Annotated[str, Field(min_length=1)] | None = None
    """Folder that trainer and generators reach, or URL such as s3://bucket/path; under it each run
    has a folder of its name. The library of a URL's protocol (s3fs, gcsfs) takes credentials and
    endpoint from its own environment variables. None = in the run's folder."""
    anchor_every: Annotated[int, Field(ge=1)] = 16
    """Interval, in versions, of one that is also written whole: a generator that joins, or was away
    for long, begins with it. It is written earlier if the changes since the last one have as many
    bytes as it has."""
    max_gib: Annotated[float, Field(gt=0)] = 100.0
    """Size of all objects of the run together, in GiB. Old ones are removed when no generator needs
    them, and before that if there are more. Three whole versions must fit. 100 = enough for 16
    billion parameters."""


class Weights(Settings):
    """Publishing of weights (wire 2)."""

    bucket_bytes: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """Size of one packed, reused broadcast buffer. 4-64 MiB are equally fast; larger first-touch
    buffers are slower."""
    bucket_timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Deadline of one bucket's broadcast: what a frozen receiver costs at most."""
    opening_timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Deadline for opening the groups of all lanes when members change. 60: a first use of NCCL on
    a busy machine takes tens of seconds. A generator that dies or freezes meanwhile is noticed
    earlier, by its stream or its heartbeats."""
    acknowledge_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Deadline from the last bucket to the acknowledgement that the version was applied; one second
    is added for each GB of the version. A generator that misses it is fenced, and an engine that
    still applies is ended. 30 = ample for a small model, also on a machine that is busy starting
    others. With transport = store a pull that reads nothing for as long has failed."""
    transport: Literal["auto", "nccl", "gloo", "store"] = "auto"
    """Transport of the weights to the generators. nccl = from GPU to GPU. gloo = through host
    memory and TCP: slower, but it also works on CPUs, on one GPU that generator and trainer share,
    and with drivers that stop NCCL. store = as objects in a folder or object storage, from which
    generators anywhere pull them, mostly the changed elements alone. auto = store if
    weights.store.location is set, else nccl if the trainer has a GPU of its own, else gloo; the
    trainer logs which and why."""
    store: WeightStore = WeightStore()
    stage: Literal["auto", "device", "host"] = "auto"
    """The memory in which a generator keeps a version that it has received and not yet applied.
    device = whole, on every worker's GPU: the shortest pause. host = once, in host memory that the
    workers share: each copies its slice when the version is applied. auto = on the device if that
    leaves a gigabyte of it free, else on the host; on one GPU that generator and trainer share, or
    with transport = store, on the host."""
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Interval of a generator's heartbeats."""
    heartbeat_timeout_seconds: Annotated[float, Field(gt=0)] = 8.0
    """A generator silent for longer, or whose engine did not step for longer while it had work, is
    fenced."""
    coalesce_seconds: Annotated[float, Field(ge=0)] = 2.0
    """Joiners that arrive within this time enter in one epoch."""

    @property
    def max_claim_silence_seconds(self) -> float:
        """A claim that was not renewed for this long has lost its owner."""
        return 3.0 * self.heartbeat_timeout_seconds

    @property
    def uses_store(self) -> bool:
        """Whether versions are objects that generators pull."""
        has_location = self.store.location is not None
        return self.transport == "store" or (self.transport == "auto" and has_location)

    @property
    def staging(self) -> Literal["auto", "device", "host"]:
        """`stage`, with what the transport decides."""
        # The processor inflates a pulled version, once for all workers.
        return "host" if self.uses_store else self.stage

    @property
    def versions_of_trainer(self) -> int:
        """Versions of its rows that a trainer rank keeps in host memory."""
        # One that is sent, one that is filled, and the base of the next changes.
        return 3 if self.uses_store else 2
