"""vLLM's AsyncLLM, reduced to what a rollout and a weight update need.

    no version --update--> serving <--update (pause, load, label, resume)--> serving --withdraw--> no version

Requests wait outside the engine until a version from the trainer is held: the model on disk is never sampled from
(its weights are not even read). An update pauses between two steps, KV caches kept. Requests that are not decoding at
that moment (no token yet, or their KV is being rebuilt) are aborted under the pause, to be submitted again: so the KV
of a prompt is of one version, and every change of version is visible in the spans.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.generator.engine_folder import EngineFolder
from rollcast.generator.steps import EngineCounts
from rollcast.rollouts.records import Sampling, VersionSpan
from rollcast.wire.version import PolicyVersion

Finish = Literal["stop", "length", "abort"]
WORKER_EXTENSION = "rollcast.generator.worker.GeneratorWorker"
WARM_UP_SECONDS = 600.0
"""For the compiler, on a machine that has many things to do."""


class BadRequestError(ValueError):
    """The engine refused a request: its task cannot be answered by this model."""


@dataclass(eq=False)
class EngineRequest:
    """One request to the engine; the salt is chosen when it is submitted, by the version then held."""

    token_ids: list[int]
    max_tokens: int
    sampling: Sampling
    seed: int | None
    salt: Callable[[PolicyVersion], str]
    first_version: PolicyVersion | None = None
    request_id: str = ""
    """Empty until submitted."""
    aborted: bool = False


@dataclass(frozen=True)
class Sampled:
    """What one request gave; `spans` count from its first token."""

    request_id: str
    token_ids: list[int]
    logprobs: list[float]
    spans: list[VersionSpan]
    finish: Finish
    num_cached_tokens: int


class Engine:
    """One vLLM engine in a child process."""

    def __init__(self, llm: Any, deadline_seconds: float, folder: EngineFolder) -> None:
        self._llm = llm
        self._folder = folder
        self._deadline_seconds = deadline_seconds
        self._version: PolicyVersion | None = None
        self._applied: list[PolicyVersion] = []
        self._live: dict[str, EngineRequest] = {}
        self._admission = asyncio.Condition()
        self._ids = itertools.count()
        self._aborts: set[asyncio.Task[None]] = set()
        self._rebuilds: dict[str, list[tuple[int, int]]] = {}
        self.counts = EngineCounts()
        self.load_seconds = 0.0
        """Of the last update's pause: what copying the parameters into the model took."""

    @classmethod
    async def start(cls, config: RunConfig, name: str) -> Engine:
        """Start the child process and the model's skeleton. Raises UserError where the model cannot be served.

        `name` gives each generator of a run random numbers of its own.
        """
        await asyncio.to_thread(_import_vllm)
        folder = await asyncio.to_thread(EngineFolder)
        try:
            with folder.environment():
                llm = await asyncio.to_thread(_start_llm, config, name)
        except BaseException:
            folder.close()
            raise
        engine = cls(llm, config.weights.acknowledge_timeout_seconds, folder)
        await engine._warm_up()
        await engine.call("prepare_for_rollcast", config.generator.cpu)
        return engine

    @property
    def version(self) -> PolicyVersion | None:
        """Of the weights that sample now; None = none that may be used."""
        return self._version

    @property
    def newest_version(self) -> PolicyVersion | None:
        """The last version that was applied, withdrawn or not."""
        return self._applied[-1] if self._applied else None

    @property
    def num_workers(self) -> int:
        return int(self._llm.vllm_config.parallel_config.world_size)

    @property
    def num_running(self) -> int:
        return len(self._live)

    @property
    def failed(self) -> bool:
        return self._llm is None or bool(self._llm.errored)

    async def sample(self, request: EngineRequest) -> Sampled:
        """Run one request to its end; waits for a version first. Raises BadRequestError, or what vLLM raises."""
        async with self._admission:
            await self._admission.wait_for(lambda: request.aborted or self._version is not None)
            if request.aborted:
                return Sampled("", [], [], [], "abort", 0)
            assert self._version is not None
            outputs = await self._submit(request, self._version)
        try:
            output = await outputs.get()
        except asyncio.CancelledError:
            await self._llm.abort(request.request_id, internal=True)
            raise
        finally:
            self._live.pop(request.request_id, None)
        completion = output.outputs[0]
        if completion.finish_reason not in ("stop", "length", "abort"):
            raise RuntimeError(f"engine ended request {request.request_id} with {completion.finish_reason!r}")
        return Sampled(
            request_id=request.request_id,
            token_ids=list(completion.token_ids),
            logprobs=list(completion.logprobs.logprobs),
            spans=[
                VersionSpan(PolicyVersion.parse(span.version), span.start, span.end)
                for span in completion.weight_versions or ()
            ],
            finish=completion.finish_reason,
            num_cached_tokens=output.num_cached_tokens or 0,
        )

    def abort(self, request: EngineRequest) -> None:
        """Make `sample` return soon, with finish "abort" and the tokens so far."""
        request.aborted = True
        task = asyncio.create_task(self._abort(request))
        self._aborts.add(task)
        task.add_done_callback(self._aborts.discard)

    def versions_since(self, request: EngineRequest) -> set[PolicyVersion]:
        """Versions that may have sampled tokens of a running request."""
        if request.first_version is None:
            return set()
        return set(self._applied[self._applied.index(request.first_version) :])

    async def update(self, version: PolicyVersion, load: str, *arguments: Any) -> float:
        """Pause, let every worker `load` (see GeneratorWorker.apply_received), label, resume.

        Returns the pause in seconds: from the end of the last step, or the request if the engine was idle, until it
        was told to go on. A worker that failed to load holds no version: the error must end the process.
        """
        core = self._llm.engine_core
        async with self._admission, asyncio.timeout(self._deadline_seconds):
            asked_at = time.monotonic()
            await core.pause_scheduler_async(mode="keep", clear_cache=False)
            loaded: tuple[list[str], float, float] = (await self.call(load, *arguments))[0]
            decoding, last_step_at, self.load_seconds = loaded
            waiting = self._live.keys() - set(decoding)
            # One socket: they take effect in this order, and the engine waits for one round trip only.
            await asyncio.gather(
                self._llm.abort(waiting, internal=True),
                core.set_weight_version_async(str(version)),
                core.resume_scheduler_async(),
            )
            self._version = version
            self._applied.append(version)
            self._admission.notify_all()
        return time.monotonic() - max(asked_at, last_step_at)

    async def withdraw(self) -> None:
        """The held weights are of no use any more: nothing new is submitted until the next update."""
        async with self._admission:
            self._version = None

    async def call(self, method: str, *arguments: Any) -> list[Any]:
        """A method of the worker extension on every worker, within the deadline."""
        async with asyncio.timeout(self._deadline_seconds):
            answers: list[Any] = await self._llm.collective_rpc(method, args=arguments)
            return answers

    async def observe(self) -> dict[str, list[tuple[int, int]]]:
        """Refresh `counts` and return, by request, the KV rebuilds after preemptions that nobody took yet."""
        counts, rebuilds = (await self.call("take_observations"))[0]
        self.counts = EngineCounts(*counts)
        for request_id, num_output_tokens, kept in rebuilds:
            self._rebuilds.setdefault(request_id, []).append((num_output_tokens, kept))
        return self._rebuilds

    def decode(self, token_ids: list[int]) -> str:
        """Text of a completion. Special tokens stay: in some vocabularies the end of thinking is one."""
        return str(self._llm.get_tokenizer().decode(token_ids, skip_special_tokens=False))

    def shutdown(self) -> None:
        """End the child process. Nothing may be called afterwards."""
        self._llm.shutdown(timeout=2.0)
        self._llm = None
        self._folder.close()

    async def _warm_up(self) -> None:
        """Sample two tokens from the skeleton: from one request, then from two at once.

        vLLM compiles its sampler at the first request, and again for any number of them at the second: on a fresh
        machine many seconds in which the engine answers nobody, and a member that is silent so long is fenced. What is
        computed goes with its cache salt, and is not counted. Raises TimeoutError.
        """
        skeleton = PolicyVersion(0, 0)
        async with asyncio.timeout(WARM_UP_SECONDS):
            for num_requests in (1, 2):
                requests = [
                    EngineRequest([0], max_tokens=2, sampling=Sampling(), seed=None, salt=lambda version: "warm-up")
                    for _ in range(num_requests)
                ]
                outputs = [await self._submit(request, skeleton) for request in requests]
                for request, output in zip(requests, outputs, strict=True):
                    await output.get()
                    del self._live[request.request_id]

    async def _submit(self, request: EngineRequest, version: PolicyVersion) -> Any:
        from vllm import SamplingParams
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input
        from vllm.sampling_params import RequestOutputKind

        try:
            parameters = SamplingParams(
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                top_k=request.sampling.top_k,
                seed=request.seed,
                max_tokens=request.max_tokens,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = tokens_input(request.token_ids, cache_salt=request.salt(version))
            outputs = await self._llm.add_request(str(next(self._ids)), prompt, parameters)
        except VLLMClientError as error:
            raise BadRequestError(f"{len(request.token_ids)} prompt tokens: {_first_sentence(error)}") from error
        request.first_version = version
        request.request_id = outputs.request_id
        self._live[outputs.request_id] = request
        return outputs

    async def _abort(self, request: EngineRequest) -> None:
        async with self._admission:
            self._admission.notify_all()
            if request.request_id:
                await self._llm.abort(request.request_id, internal=True)


def set_environment(config: RunConfig) -> None:
    """What vLLM reads from the environment; to be called before it is imported.

    Raises UserError where generator.cpu is not a core of this process.
    """
    cores = os.sched_getaffinity(0)
    if config.generator.cpu is not None and config.generator.cpu not in cores:
        raise UserError(
            f"generator.cpu = {config.generator.cpu}: this process may run on {sorted(cores)}; choose one of them"
        )
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    # A fork of a process with threads may hang, and cannot be told from its parent by its environment (EngineFolder).
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(config.generator.cpu_kv_cache_gib)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if config.generator.cpu is not None:
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = str(config.generator.cpu)


def engine_arguments(config: RunConfig, name: str) -> dict[str, Any]:
    """Arguments of vLLM's AsyncEngineArgs for this run, on this device."""
    from vllm.platforms import current_platform

    generator = config.generator
    arguments: dict[str, Any] = {
        "model": config.model.path,
        "dtype": config.model.dtype,
        "max_model_len": config.model.max_length,
        "trust_remote_code": config.model.trust_remote_code,
        "load_format": "dummy",
        "max_num_seqs": generator.slots,
        "seed": zlib.crc32(f"{config.seed}/{name}".encode()),
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "worker_extension_cls": WORKER_EXTENSION,
        "disable_log_stats": True,
        "enable_log_requests": False,
    }
    if generator.block_size is not None:
        arguments["block_size"] = generator.block_size
    if config.recipe.lm_head == "fp32":
        arguments["hf_overrides"] = {"head_dtype": "float32"}
    if current_platform.is_cpu():
        # One process less than vLLM's default, and no compilation: tiny models start in half the time.
        arguments["distributed_executor_backend"] = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
        arguments["enforce_eager"] = True
    else:
        arguments["tensor_parallel_size"] = generator.tensor_parallel
        arguments["gpu_memory_utilization"] = generator.gpu_memory_utilization
        # The other kernels reorder the weights of experts: a new version could not be loaded in place.
        arguments["moe_backend"] = "triton"
    return arguments


def _import_vllm() -> None:
    """Apart from the start: tracebacks of failed optional imports are kept, and their frames would keep the engine."""
    import vllm.v1.engine.async_llm  # noqa: F401


def _start_llm(config: RunConfig, name: str) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    if current_platform.is_cpu():
        # The engine's child process inherits it; more than one OpenMP thread would fight over its core.
        os.environ["OMP_NUM_THREADS"] = "1"
    arguments = engine_arguments(config, name)
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))
    except RuntimeError as error:
        raise UserError(
            f"model.path = {config.model.path}: vLLM's engine did not start ({_first_sentence(error)}); "
            "its own message stands above; memory for the model and generator.cpu_kv_cache_gib is the usual want"
        ) from error
    except Exception as error:  # a broken tokenizer.json is a bare Exception, other files are whatever they break
        raise UserError(
            f"model.path = {config.model.path}: vLLM cannot serve it ({_first_sentence(error)}); "
            "give the folder of a Hugging Face causal LM"
        ) from error


def _first_sentence(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
