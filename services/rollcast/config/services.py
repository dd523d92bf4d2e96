"""Settings of the processes and of the connections between them."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from rollcast.config.base import CONDITION, CURVE_NAME, NAMESPACE, REDIS_SCOPE, FolderOrName, Settings
from rollcast.config.bounds import MOST_COMPUTE, MOST_DERIVED_SLOTS
from rollcast.config.engine_arguments import EngineArguments

Port = Annotated[int, Field(ge=0, le=65_535)]
Recomputation = bool | Literal["selective"]
"""The values of trainer.activation_checkpointing."""
AttentionKernel = Literal["auto", "flash", "cudnn", "efficient", "math"]
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
    """TCP port. In local mode 0 = start an embedded server, also if host and port are left out. It listens on a Unix socket
    in the run folder; on a free port if the folder cannot hold one or if `host` is not a loopback address."""
    socket: Path | None = None
    """Unix socket of a server on this machine, used instead of host and port. None = TCP."""
    username: str | None = None
    """User name of Redis ACLs. None = the default user."""
    password: Secret | None = None
    """None = no authentication; for an embedded server a random password of each start, in run.json of the run folder.
    The environment variable ROLLCAST_REDIS_PASSWORD, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 10.0
    """Deadline of one command; a server away longer is waited for with back-off and reported."""
    scope: Annotated[str, Field(pattern=REDIS_SCOPE)] = ""
    """Put before the run's name in every key, so that runs of one name may share a server without sharing a queue. The chart
    sets NAMESPACE/RELEASE if Redis is not its own. Empty = the run's name alone, for a Redis that no one else uses."""
    max_bytes: Annotated[int, Field(ge=1 << 20)] = 4 << 30
    """Bytes of rollouts not yet trained on above which no new task is dispatched (back-pressure)."""

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
    """Shared secret that a generator presents. None = any peer is accepted; in local mode a random token of each start, in
    run.json of the run folder. ROLLCAST_RPC_TOKEN, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP."""


class Grader(Settings):
    """The grading service, where tasks.grading.sandbox is remote. rpc.tls applies, with a token of its own."""

    host: str = "127.0.0.1"
    """Name or address of the grader, as generators reach it."""
    port: Port = 7432
    """gRPC port. In local mode 0 = start a grader on a free one, also where host and port are left out."""
    bind: str = "127.0.0.1"
    """Address the grader listens on; 0.0.0.0 in a pod."""
    token: Secret | None = None
    """Shared secret that a generator presents. None = any peer is accepted; for a grader that local mode starts a random
    token of each start. ROLLCAST_GRADER_TOKEN, where set, wins."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics. 0 = a free one, written to the run folder."""
    sandbox: Literal["strict", "gvisor"] = "strict"
    """Isolation that the grader's own machine must provide, as in tasks.grading.sandbox."""
    processes: Annotated[int, Field(ge=1, le=256)] = 4
    """Gradings that one grader runs concurrently. Each takes up to one core while it runs, so a number above the cores
    that the grader may use is reduced to them."""
    queue: Annotated[int, Field(ge=0, le=256)] = 16
    """Gradings that wait in one grader for their turn. One more is sent away, and its generator tries again later."""
    patience_seconds: Annotated[float, Field(gt=0, le=20_000)] = 180.0
    """How long a generator tries to have one completion graded, waiting included; then it counts as not graded. 180 =
    the backstop of the longest grading, and time to wait for a turn."""


class Http(Settings):
    """/healthz, /readyz and /metrics of every service, and the forecaster's page and API."""

    bind: str = "127.0.0.1"
    """Address that trainer and generators listen on; 0.0.0.0 in a pod. The forecaster has its own."""
    token: Secret | None = None
    """Shared secret for every path except the probes /healthz, /startz and /readyz: a bearer token, in a browser the
    password. None = no secret is needed. ROLLCAST_HTTP_TOKEN, where set, wins."""
    tls: TLS | None = None
    """None = plain TCP. The certificate names the address bound, or 127.0.0.1 if every address is bound; callers are
    known by the token alone, because probes and browsers hold no certificate."""


class Weights(Settings):
    """Publishing of weights (wire 2)."""

    bucket_bytes: Annotated[int, Field(ge=1 << 16)] = 64 << 20
    """Size of one packed, reused broadcast buffer. 4-64 MiB are equally fast; larger first-touch buffers are slower."""
    bucket_timeout_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Deadline of one bucket's broadcast: what a frozen receiver costs at most."""
    opening_timeout_seconds: Annotated[float, Field(gt=0)] = 60.0
    """Deadline for opening the groups of all lanes when members change. 60: a first use of NCCL on a busy machine takes
    tens of seconds. A generator that dies or freezes meanwhile is noticed earlier, by its stream or its heartbeats."""
    acknowledge_timeout_seconds: Annotated[float, Field(gt=0)] = 30.0
    """Deadline from the last bucket to the acknowledgement that the version was applied; one second is added for each GB
    of the version. A generator that misses it is fenced, and an engine that still applies is ended. 30 = ample for a small
    model, also on a machine that is busy starting others."""
    transport: Literal["auto", "nccl", "gloo"] = "auto"
    """Transport of the weights to the generators. nccl = from GPU to GPU. gloo = through host memory and TCP: slower,
    but it also works on CPUs, on one GPU that generator and trainer share, and with drivers that stop NCCL. auto = nccl
    if the trainer has a GPU of its own, else gloo; the trainer logs which and why."""
    stage: Literal["auto", "device", "host"] = "auto"
    """The memory in which a generator keeps a version that it has received and not yet applied. device = whole, on
    every worker's GPU: the shortest pause. host = once, in host memory that the workers share: each copies its slice
    when the version is applied. auto = on the device if that leaves a gigabyte of it free, else on the host; on one GPU
    that generator and trainer share, on the host."""
    heartbeat_seconds: Annotated[float, Field(gt=0)] = 1.0
    """Interval of a generator's heartbeats."""
    heartbeat_timeout_seconds: Annotated[float, Field(gt=0)] = 8.0
    """A generator silent for longer, or whose engine did not step for longer while it had work, is fenced."""
    coalesce_seconds: Annotated[float, Field(ge=0)] = 2.0
    """Joiners that arrive within this time enter in one epoch."""


DEFAULT_GPU_SHARE = 0.9
"""The share of a GPU of its own that vLLM takes; the rest is room for a staged version and CUDA graphs."""


class Generator(Settings):
    """The vLLM service."""

    slots: Annotated[int, Field(ge=1)] | None = None
    """Rollouts that one generator runs concurrently; also vLLM's max_num_seqs, so that nothing waits inside the engine.
    None = as many of model.max_length as its KV cache holds, asked of the engine once it has started; at least the
    rollouts of one prompt, at most 256. Then nothing is preempted. More are faster if few rollouts are that long."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = DEFAULT_GPU_SHARE
    """Share of GPU memory for weights and KV cache. On one GPU that generator and trainer share, 0.9 stands for what the
    trainer leaves, which `rollcast up` counts. Not used on CPU."""
    gpu_kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """KV cache on a GPU, in GiB. None = what vLLM finds that its share has left, which it measures while nothing else uses
    the GPU; on one that generator and trainer share, `rollcast up` counts it. Not used on CPU."""
    cpu_kv_cache_gib: Annotated[int, Field(ge=1)] = 1
    """KV cache on CPU, in whole GiB. Not used on GPU."""
    block_size: Annotated[int, Field(ge=16)] | None = None
    """KV block in tokens. None = vLLM's default for the device; 32 lets tiny prompts share."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """GPUs of one generator."""
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Time after SIGTERM in which running groups may finish before they are handed back unfinished."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics. 0 = a free one, written to the run folder."""
    cpu: int | None = None
    """CPU core of generator 0 in local mode (generator i takes the i-th after it). None = the operating system's choice."""
    engine: EngineArguments = EngineArguments()
    """Passed on to vLLM (docs/models.md)."""

    @property
    def most_slots(self) -> int:
        """An upper bound of the slots, for who does not know the KV cache."""
        return MOST_DERIVED_SLOTS if self.slots is None else self.slots


class Trainer(Settings):
    """The FSDP learner."""

    tokens_per_micro_batch: Annotated[int, Field(ge=1)] = 16_384
    """Padded tokens of one forward and backward pass on one rank: the memory knob."""
    logits_chunk_tokens: Annotated[int, Field(ge=1)] = 1_024
    """Tokens whose logits exist at a time: bounds the [tokens, vocabulary] tensor."""
    activation_checkpointing: Literal[False, True, "selective"] = False
    """Recompute activations in the backward pass. true = each layer keeps its input alone: a third more computation, far
    less memory. selective = it also keeps the results of matrix products and of attention, and computes only the rest
    again: nearly no more computation, about 40 % of the memory. false = everything is kept: the fastest if it fits."""
    attention: AttentionKernel = "auto"
    """The kernel that computes attention if it can: flash, cudnn, efficient or math. Layers that it cannot compute take
    another. auto = torch's order. The trainer reports the kernel in use in its log and in rollcast_attention_kernel."""
    packing: bool = False
    """Lay the sequences of a micro-batch one after the other, without padding. On a GPU it needs model.dtype bfloat16 and
    flash attention. Off because its gain was not measured on a GPU: padding is about a tenth of the tokens."""
    shard_ranks: Annotated[int, Field(ge=1)] | None = None
    """Ranks that share one copy of weights and optimizer; every further group of as many ranks holds a copy of its own
    (HSDP). The ranks of one machine: then only one sum of gradients a step crosses the network. It must divide the number
    of ranks. None = all ranks share one copy, which takes the least memory."""
    compile: bool = False
    """Compile decoder layers and output head (torch.compile), which fuses norms, rotary embeddings and activations. The
    first steps take minutes longer. Not for models with experts, and on a CPU without effect on packed layers that are recomputed.
    It needs a C compiler. Off because its gain was not measured on a GPU."""
    checkpoint_every_steps: Annotated[int, Field(ge=1)] = 50
    """Optimizer steps between checkpoints; also written on SIGTERM and at the end. Training goes on while one is written,
    from a copy on the host: 12 bytes a parameter over all ranks, which they keep."""
    checkpoints: FolderOrName | None = None
    """Folder, or URL such as s3://bucket/path, that checkpoints are kept in, under the run's name. The trainer of a URL needs
    the library of its protocol (s3fs, gcsfs), which takes credentials and endpoint from its own environment variables. None =
    in the run's folder."""
    keep_checkpoints: Annotated[int, Field(ge=1)] = 2
    """Older ones are deleted."""
    collective_timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Deadline of a training collective."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics of rank 0. 0 = a free one, written to the run folder."""
    drop_after_budgets: Annotated[float, Field(gt=0)] = 3.0
    """A group is redone when it took this many times (token budget / slowest measured decode rate), and longer than all
    slots of a generator may wait for verdicts of the sandbox."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of a rank. None = torch's choice."""
    cpu: int | None = None
    """CPU core of rank 0 in local mode (rank r takes the r-th after it). None = the operating system's choice."""


class DirectScrape(Settings):
    kind: Literal["scrape"] = "scrape"
    """Read the services' /metrics: no Prometheus needed."""
    urls: tuple[str, ...] = ()
    """Metrics pages; http.token is presented to each. Empty = the trainer's, found in the run folder."""
    every_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Interval of reading."""


class CurveTerms(Settings):
    """Terms of the advice on a run of another framework."""

    budget: Annotated[float, Field(gt=0, le=MOST_COMPUTE)] | None = None
    """Compute at which the run will end, including the compute spent so far, in the unit of its curve. None =
    unknown: the advice assumes twice the compute spent so far, and says so."""
    worth: Annotated[float, Field(ge=0, le=1)] | None = None
    """Gain in pass rate that the rest of the budget would be paid for. None = 0.02, less in proportion where less is left than
    was spent."""
    price: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """Price of one unit of the curve's compute, in any currency. None = no cost is reported."""


class CurveQueries(CurveTerms):
    """A run of any framework, as PromQL: each expression selects one series that keeps its value between evaluations."""

    run: Annotated[str, Field(pattern=CURVE_NAME)]
    """Name under which the forecast is served."""
    pass_rate: str
    """Mean reward or accuracy on held-out prompts, in [0, 1]."""
    compute: str
    """Device-hours since the start when that was measured."""
    standard_error: str | None = None
    """Standard error of the pass rate. None = unknown."""
    truncation_ratio: str | None = None
    """Share of the rollouts that the token budget cut off; the verdict heeds it. None = unknown."""
    step: str | None = None
    """Optimizer step of the evaluation, which distinguishes it from the next one. None = by a change of the pass
    rate."""
    look_back_hours: Annotated[float, Field(gt=0, le=8_760)] = 720.0
    """How far back the run began, at most."""


class PrometheusSource(Settings):
    kind: Literal["prometheus"] = "prometheus"
    """Read a Prometheus server's query API."""
    url: str
    """Address of the server, as http://host:9090."""
    every_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Interval of reading. A third of the usual scrape interval, so that a forecast is refreshed within one; most looks find
    nothing new and fit nothing."""
    token: Secret | None = None
    """Bearer token. None = none."""
    namespace: Annotated[str, Field(pattern=NAMESPACE)] = ""
    """Only Rollcast's runs whose series have this label `namespace`; two of one name in two namespaces would be taken for
    one. The chart sets its own. Empty = whatever the label."""
    curves: tuple[CurveQueries, ...] = ()
    """Runs of other frameworks. Rollcast's own runs are found by their metrics' names."""


class CurveFile(CurveTerms):
    """A run of any framework as a log that grows: a file or folder of a format that `rollcast fit` reads."""

    run: Annotated[str, Field(pattern=CURVE_NAME)]
    """Name under which the forecast is served."""
    path: Path
    """File or folder: CSV, JSON, JSONL, W&B, TensorBoard, MLflow, TRL, or a console log; at most 64 MiB. One that has
    changed is read again from its beginning. A last line that is not ended yet waits for its end. Columns are found in
    upper and lower case alike."""
    compute: str | None = None
    """Column of the compute since the start; its name contains the unit. None = recognised by its name, as `rollcast
    fit` does: device-hours, else steps, else tokens, samples or times."""
    pass_rate: str | None = None
    """Column of the mean reward or accuracy on held-out prompts, in [0, 1]. None = recognised by its name, as `rollcast fit`
    does; if several could be meant, the page asks for this setting."""
    scale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """Times the pass rate, after `offset` was added, and times its standard error. 0.01 = the file holds per cent."""
    offset: Annotated[float, Field(ge=-1e6, le=1e6)] = 0.0
    """Added to the pass rate before it is scaled. 1, with scale 0.5, maps rewards in [-1, 1] to [0, 1]; 0 adds nothing."""
    standard_error: str | None = None
    """Column of the standard error of the pass rate. None = standard_error, stderr; unknown if the file has neither."""
    truncation_ratio: str | None = None
    """Share of the rollouts that the token budget cut off; the verdict heeds it. None = truncation_ratio, truncation_rate,
    truncated."""
    step: str | None = None
    """Optimizer step, which distinguishes evaluations. None = global_step, training_step, step, iteration and the like,
    or else the number of the row."""
    time: str | None = None
    """Unix seconds of the evaluation. None = when its row was first read."""
    where: tuple[Annotated[str, Field(pattern=CONDITION)], ...] = ()
    """COLUMN=VALUE that rows must meet, for a file with several runs or measures."""


class FileSource(Settings):
    kind: Literal["files"] = "files"
    """Read files: no service, no Prometheus needed."""
    curves: Annotated[tuple[CurveFile, ...], Field(min_length=1, max_length=200)]
    """One file for each run."""
    every_seconds: Annotated[float, Field(gt=0)] = 2.0
    """Interval between two looks at each file; one that has not changed is not read. A long file that changes all the time is
    read less often: 5 MiB a second on average."""


class Forecaster(Settings):
    source: Annotated[DirectScrape | PrometheusSource | FileSource, Field(discriminator="kind")] = DirectScrape()
    """Where evaluations are read from."""
    bind: str = "127.0.0.1"
    """Address of the page and the API; token and TLS are those of http."""
    http_port: Port = 8400
    """Port of the live page, the HTTP API and /metrics. 0 = a free one. Left out, `rollcast up` takes a free one if
    8400 is taken."""
    push_token: Secret | None = None
    """Shared secret of trainers that push the evaluations of their runs to /api/push. None = http.token; where neither is
    set nothing may be pushed. ROLLCAST_PUSH_TOKEN, where set, wins."""
    history: Path | None = None
    """SQLite file of past forecasts. None = forecasts.sqlite in the run folder."""


class Local(Settings):
    """One machine: how many of each process `rollcast up` keeps."""

    generators: Annotated[int, Field(ge=0, le=64)] = 1
    """Generator processes."""
    trainer_ranks: Annotated[int, Field(ge=1, le=64)] = 1
    """Trainer processes (FSDP ranks)."""
    gpus: Annotated[int, Field(ge=1, le=4_096)] | None = None
    """GPUs that the run may use: the first of those that CUDA_VISIBLE_DEVICES leaves. None = all of them. One is shared by
    the generators and the trainer's only rank; of several each process has its own."""
    restart_limit: Annotated[int, Field(ge=0)] = 5
    """Restarts of one process within ten minutes before the run is given up."""
    prometheus_port: Port = 9090
    """Port of the Prometheus that `rollcast up --monitor` starts, on 127.0.0.1. 0 = a free one. Left out, a free one
    if 9090 is taken: another run's Prometheus may have it."""

    @property
    def shares_gpu(self) -> bool:
        """Whether generators and trainer use the same GPU."""
        return self.gpus == 1 and self.generators > 0


class Budget(Settings):
    """When the run ends: at the first of these."""

    steps: Annotated[int, Field(ge=1)] | None = None
    """Optimizer steps. None = no bound."""
    device_hours: Annotated[float, Field(gt=0)] | None = None
    """Compute of the surviving history (GPU-hours; core-hours on CPU). None = no bound."""
    endless: bool = False
    """The run has no bound on purpose: Ctrl-C, or stop_when, ends it. Off: a run without a bound is refused at its start."""


class StopWhen(Settings):
    """Ends the run by itself when the rest of its budget is not worth it; judged at every evaluation.

    On three evaluations in a row the verdict has to be broken, or no_learning in the second half of the budget, or one of
    these conditions has to hold.
    """

    least_gain: Annotated[float, Field(ge=0, le=1)] = 0.01
    """Pass rate. Stop when the rest of the budget gains less, at the upper end of the forecast's 90 % interval, whatever the
    verdict, once the curve has ten evaluations: a run that learns nothing ends as well. 0 = never for this reason. 0.01 is
    half of the margin within which the paper calls two runs equal."""
    on_saturated: bool = True
    """Stop on the verdict saturated as well: a gain of 0.03 until twice the compute then has a chance below 10 %."""
