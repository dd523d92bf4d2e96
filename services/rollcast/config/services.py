"""Settings of the processes of a run."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import FolderOrName, Settings
from rollcast.config.bounds import MOST_DERIVED_SLOTS
from rollcast.config.connections import Port, Secret
from rollcast.config.curve_sources import DirectScrape, FileSource, PrometheusSource
from rollcast.config.engine_arguments import EngineArguments

Recomputation = bool | Literal["selective"]
"""The values of trainer.activation_checkpointing."""
AttentionKernel = Literal["auto", "flash", "cudnn", "efficient", "math"]


class Grader(Settings):
    """The grading service, where tasks.grading.sandbox is remote. rpc.tls applies, with a token of
    its own.
    """

    host: str = "127.0.0.1"
    """Name or address of the grader, as generators reach it."""
    port: Port = 7432
    """gRPC port. In local mode 0 = start a grader on a free one, also where host and port are left
    out."""
    bind: str = "127.0.0.1"
    """Address the grader listens on; 0.0.0.0 in a pod."""
    token: Secret | None = None
    """Shared secret that a generator presents. None = any peer is accepted; for a grader that local
    mode starts a random token of each start. ROLLCAST_GRADER_TOKEN, where set, wins."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics. 0 = a free one, written to the run folder."""
    sandbox: Literal["strict", "gvisor"] = "strict"
    """Isolation that the grader's own machine must provide, as in tasks.grading.sandbox."""
    processes: Annotated[int, Field(ge=1, le=256)] = 4
    """Gradings that one grader runs concurrently. Each takes up to one core while it runs, so a
    number above the cores that the grader may use is reduced to them."""
    queue: Annotated[int, Field(ge=0, le=256)] = 16
    """Gradings that wait in one grader for their turn. One more is sent away, and its generator
    tries again later."""
    patience_seconds: Annotated[float, Field(gt=0, le=20_000)] = 180.0
    """How long a generator tries to have one completion graded, waiting included; then it counts as
    not graded. 180 = the backstop of the longest grading, and time to wait for a turn."""


DEFAULT_GPU_SHARE = 0.9
"""The share of a GPU of its own that vLLM takes; the rest is room for a staged version and CUDA
graphs."""


class Generator(Settings):
    """The vLLM service."""

    slots: Annotated[int, Field(ge=1)] | None = None
    """Rollouts that one generator runs concurrently; also vLLM's max_num_seqs, so that nothing
    waits inside the engine. None = as many of model.max_length as its KV cache holds, asked of the
    engine once it has started; at least the rollouts of one prompt, at most 256. Then nothing is
    preempted. More are faster if few rollouts are that long."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = DEFAULT_GPU_SHARE
    """Share of GPU memory for weights and KV cache. On one GPU that generator and trainer share,
    0.9 stands for what the trainer leaves, which `rollcast up` counts. Not used on CPU."""
    gpu_kv_cache_gib: Annotated[float, Field(gt=0)] | None = None
    """KV cache on a GPU, in GiB. None = what vLLM finds that its share has left, which it measures
    while nothing else uses the GPU; on one that generator and trainer share, `rollcast up` counts
    it. Not used on CPU."""
    cpu_kv_cache_gib: Annotated[int, Field(ge=1)] = 1
    """KV cache on CPU, in whole GiB. Not used on GPU."""
    block_size: Annotated[int, Field(ge=16)] | None = None
    """KV block in tokens. None = vLLM's default for the device; 32 lets tiny prompts share."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """GPUs of one generator."""
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    """Time after SIGTERM in which running groups may finish before they are handed back
    unfinished."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics. 0 = a free one, written to the run folder."""
    cpu: int | None = None
    """CPU core of generator 0 in local mode (generator i takes the i-th after it). None = the
    operating system's choice."""
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
    """Recompute activations in the backward pass. true = each layer keeps its input alone: a third
    more computation, far less memory. selective = it also keeps the results of matrix products and
    of attention, and computes only the rest again: nearly no more computation, about 40 % of the
    memory. false = everything is kept: the fastest if it fits."""
    attention: AttentionKernel = "auto"
    """The kernel that computes attention if it can: flash, cudnn, efficient or math. Layers that it
    cannot compute take another. auto = torch's order. The trainer reports the kernel in use in its
    log and in rollcast_attention_kernel."""
    packing: bool = False
    """Lay the sequences of a micro-batch one after the other, without padding. On a GPU it needs
    model.dtype bfloat16 and flash attention. Off because its gain was not measured on a GPU:
    padding is about a tenth of the tokens."""
    shard_ranks: Annotated[int, Field(ge=1)] | None = None
    """Ranks that share one copy of weights and optimizer; every further group of as many ranks
    holds a copy of its own (HSDP). The ranks of one machine: then only one sum of gradients a step
    crosses the network. It must divide the number of ranks. None = all ranks share one copy, which
    takes the least memory."""
    compile: Literal["auto", False, True] = "auto"
    """Compile decoder layers and output head (torch.compile), which fuses norms, rotary embeddings
    and activations. The first steps take minutes longer. Not for models with experts, and on a CPU
    without effect on packed layers that are recomputed. It needs a C compiler. auto = only on a
    kind of GPU on which compiled steps were measured to be exact and faster (none so far); the
    trainer's log says which, and why."""
    checkpoint_every_steps: Annotated[int, Field(ge=1)] = 50
    """Optimizer steps between checkpoints; also written on SIGTERM and at the end. Training goes on
    while one is written, from a copy on the host: 12 bytes a parameter over all ranks, which they
    keep."""
    checkpoints: FolderOrName | None = None
    """Folder, or URL such as s3://bucket/path, that checkpoints are kept in, under the run's name.
    The trainer of a URL needs the library of its protocol (s3fs, gcsfs), which takes credentials
    and endpoint from its own environment variables. None = in the run's folder."""
    keep_checkpoints: Annotated[int, Field(ge=1)] = 2
    """The newest ones, which are kept whatever they are worth. Older ones are deleted, except the
    best."""
    keep_best_checkpoints: Annotated[int, Field(ge=0)] = 1
    """Older checkpoints that are kept in addition: those with the highest level of the pass rate,
    by the evaluations before and after them. One stays until another is better with a chance above
    60 %. 0 = none. 1, because the peak of a run is otherwise deleted before it is known."""
    collective_timeout_seconds: Annotated[float, Field(gt=0)] = 600.0
    """Deadline of a training collective, and of rank 0 for an answer to another rank."""
    http_port: Port = 0
    """Port of /healthz, /readyz and /metrics of rank 0. 0 = a free one, written to the run
    folder."""
    threads: Annotated[int, Field(ge=1)] | None = None
    """CPU threads of a rank. None = torch's choice."""
    cpu: int | None = None
    """CPU core of rank 0 in local mode (rank r takes the r-th after it). None = the operating
    system's choice."""


class Forecaster(Settings):
    source: Annotated[DirectScrape | PrometheusSource | FileSource, Field(discriminator="kind")] = (
        DirectScrape()
    )
    """Where evaluations are read from."""
    bind: str = "127.0.0.1"
    """Address of the page and the API; token and TLS are those of http."""
    http_port: Port = 8400
    """Port of the live page, the HTTP API and /metrics. 0 = a free one. Left out, `rollcast up`
    takes a free one if 8400 is taken."""
    push_token: Secret | None = None
    """Shared secret of trainers that push the evaluations of their runs to /api/push. None =
    http.token; where neither is set nothing may be pushed. ROLLCAST_PUSH_TOKEN, where set, wins."""
    history: Path | None = None
    """SQLite file of past forecasts. None = forecasts.sqlite in the run folder."""


class Local(Settings):
    """One machine: how many of each process `rollcast up` keeps."""

    generators: Annotated[int, Field(ge=0, le=64)] = 1
    """Generator processes."""
    trainer_ranks: Annotated[int, Field(ge=1, le=64)] = 1
    """Trainer processes (FSDP ranks)."""
    gpus: Annotated[int, Field(ge=1, le=4_096)] | None = None
    """GPUs that the run may use: the first of those that CUDA_VISIBLE_DEVICES leaves. None = all of
    them. One is shared by the generators and the trainer's only rank; of several each process has
    its own."""
    prometheus_port: Port = 9090
    """Port of the Prometheus that `rollcast up --monitor` starts, on 127.0.0.1. 0 = a free one.
    Left out, a free one if 9090 is taken: another run's Prometheus may have it."""

    @property
    def shares_gpu(self) -> bool:
        """Whether generators and trainer use the same GPU."""
        return self.gpus == 1 and self.generators > 0
