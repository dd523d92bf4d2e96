"""vLLM's AsyncLLM, reduced to what a rollout and a weight update need.

    no version --update--> serving --update (pause, load, label, resume)--> serving
                           serving --withdraw--> no version

Requests wait outside the engine until it holds a version from the trainer: the weights on disk are
never sampled from (they are not even read, except the base of adapters). An update pauses between
two steps and keeps the KV caches. Requests that are not decoding at that moment (no token yet, or
their KV is being rebuilt) are aborted under the pause and submitted again. So the KV of a prompt is
of one version, and every change of version is visible in the spans.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from contextlib import nullcontext, suppress
from functools import partial
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import psutil

from rollcast.config.model import check_folder
from rollcast.config.run import RunConfig
from rollcast.generator.vllm import engine_start
from rollcast.generator.vllm.adapter import adapter_request
from rollcast.generator.vllm.engine_failure import NO_ROOM, ended_engine, explained_start, read_note
from rollcast.generator.vllm.engine_folder import EngineFolder
from rollcast.generator.vllm.engine_process import EngineFork
from rollcast.generator.vllm.engine_request import BadRequestError, EngineRequest, Sampled
from rollcast.generator.vllm.steps import EngineCounts
from rollcast.memory.staging import StagingPlace, staging_place
from rollcast.rollouts.records import RoutedExperts, Sampling, VersionSpan
from rollcast.runfolder.files import weight_store_place
from rollcast.runfolder.weight_store import open_weight_store
from rollcast.weights.plan.manifest import apply_seconds
from rollcast.wire.version import PolicyVersion

SKELETON = PolicyVersion(0, 0)
"""The version of an engine that has received none from a trainer."""


class Engine:
    """One vLLM engine in a child process."""

    def __init__(self, llm: Any, timeout_seconds: float, folder: EngineFolder) -> None:
        self._llm = llm
        self._folder = folder
        self._process: BaseProcess | None = None
        """The child process, if it is a fork of this one."""
        self._timeout_seconds = timeout_seconds
        self.version: PolicyVersion | None = None
        """The version that samples now; None = no usable weights."""
        self._applied: list[PolicyVersion] = []
        self._live: dict[str, EngineRequest] = {}
        self._admission = asyncio.Condition()
        self._ids = itertools.count()
        self._aborts: set[asyncio.Task[None]] = set()
        self._requests_by_id: WeakValueDictionary[str, EngineRequest] = WeakValueDictionary()
        """Every request that a rollout still references; the preemptions of others are of no
        use."""
        self.counts = EngineCounts.zero()
        self.load_seconds = 0.0
        """The part of the last update's pause that copied the parameters into the model."""
        self.stage: StagingPlace = "device"
        """Where received versions wait to be applied."""
        self.routing: engine_start.RoutingShape | None = None
        """Shape of the expert choices that requests return; None = they return no choices."""
        self.num_threads = 0
        """CPU threads of one worker."""
        self._adapter: Any = None
        """The adapter that every request asks for if versions are adapters (`model.lora`)."""
        self._num_rows: int | None = None
        """Rows of the embedding. None = the tokenizer knows no token beyond them."""
        self.full_rollouts = 0
        """Rollouts of model.max_length that fit into the KV cache together."""

    @classmethod
    async def start(
        cls,
        config: RunConfig,
        name: str,
        fork: EngineFork | None = None,
        *,
        own_weights: bool = False,
    ) -> Engine:
        """Start the child process and the model's skeleton. Raises UserError if the model cannot be
        served, or the store of weights cannot be used.

        `name` gives each generator of a run its own random numbers. `fork`: becomes the child; None
        = spawn one. `own_weights`: sample from the weights in the model's folder, as version 0.0,
        without a trainer.
        """
        check_folder(config.model.path)
        if config.weights.uses_store:
            # Opened by the engine's process: a mistake is known before it starts.
            store = config.weights.store
            await asyncio.to_thread(open_weight_store, config.run_folder, store.location)
        await asyncio.to_thread(engine_start.import_vllm)
        folder = await asyncio.to_thread(EngineFolder)
        engine: Engine | None = None
        try:
            arguments = engine_start.engine_arguments(config, name)
            arguments["hf_overrides"] = partial(
                arguments["hf_overrides"], stored_weights=own_weights
            )
            fork_context = nullcontext() if fork is None else fork.taken_by_vllm()
            with explained_start(config.model, config.generator, folder.path):
                with folder.environment(), fork_context:
                    reads_model = own_weights or config.model.lora is not None
                    llm = await asyncio.to_thread(
                        engine_start.start_llm, arguments, "auto" if reads_model else "dummy"
                    )
                engine = cls(llm, config.weights.acknowledge_timeout_seconds, folder)
                engine._process = None if fork is None else fork.process
                await engine._get_ready(config)
        except BaseException:
            # After the explanations, which read the notes of the engine's processes in the folder.
            if engine is None:
                folder.close()
            else:
                engine.shutdown()
            raise
        if own_weights:
            await llm.engine_core.set_weight_version_async(str(SKELETON))
            engine.version = SKELETON
            engine._applied.append(SKELETON)
        return engine

    async def _get_ready(self, config: RunConfig) -> None:
        routing = engine_start.RoutingShape(*(await self.call("routing_shape"))[0])
        quantization = config.generator.engine.quantization
        engine_start.check_routing(routing, config.recipe, config.model.max_length, quantization)
        engine_start.check_drafts(
            config.generator.engine.speculative_config,
            is_recurrent=self._llm.model_config.has_inner_state,
        )
        self.routing = routing if config.recipe.router_replay else None
        # Only a tokenizer with more tokens than rows makes a check of each request necessary.
        rows = int(self._llm.model_config.get_vocab_size())
        self._num_rows = rows if self._llm.get_tokenizer().max_token_id >= rows else None
        self.num_threads = max(await self.call("num_threads"))
        self.full_rollouts = min(await self.call("full_rollouts"))
        if (lora := config.model.lora) is not None:
            await self.call("use_adapter", lora.rank, lora.alpha)
            self._adapter = adapter_request()
        await self._warm_up()
        rooms = await self.call("room_for_staging")
        self.stage = staging_place(config.weights.staging, rooms)
        self._timeout_seconds = apply_seconds(
            self._timeout_seconds, sum(version_bytes for _, version_bytes in rooms)
        )
        location = weight_store_place(config.run_folder, config.weights.store.location)
        await self.call(
            "prepare_for_rollcast",
            config.generator.cpu,
            self.stage,
            str(location) if config.weights.uses_store else None,
        )

    @property
    def newest_version(self) -> PolicyVersion | None:
        """The last version that was applied, withdrawn or not."""
        return self._applied[-1] if self._applied else None

    @property
    def num_receivers(self) -> int:
        """Workers that receive versions."""
        return 1 if self.stage == "host" else int(self._llm.vllm_config.parallel_config.world_size)

    @property
    def num_running(self) -> int:
        return len(self._live)

    @property
    def failed(self) -> bool:
        return self._llm is None or bool(self._llm.errored)

    @property
    def no_room(self) -> str | None:
        """Error text of the engine process that ran out of memory, or None."""
        return read_note(self._folder.path, NO_ROOM)

    @property
    def end(self) -> str | None:
        """Why the engine has ended, which vLLM's front end does not know; None = it has not, or no
        process said.
        """
        if not self.failed:
            return None
        return ended_engine(
            self._folder.path, None if self._process is None else self._process.exitcode
        )

    async def sample(self, request: EngineRequest) -> Sampled:
        """Run one request to its end; waits for a version first.

        Raises BadRequestError, or what vLLM raises.
        """
        async with self._admission:
            await self._admission.wait_for(lambda: request.aborted or self.version is not None)
            if request.aborted:
                return Sampled("", [], [], [], "abort", 0)
            assert self.version is not None
            outputs = await self._submit(request, self.version)
        try:
            output = await outputs.get()
            while not output.finished:
                assert request.on_tokens is not None
                request.on_tokens(list(output.outputs[0].token_ids))
                output = await outputs.get()
        except asyncio.CancelledError:
            await self._llm.abort(request.request_id, internal=True)
            raise
        finally:
            self._live.pop(request.request_id, None)
        completion = output.outputs[0]
        if completion.finish_reason not in ("stop", "length", "abort"):
            raise RuntimeError(
                f"engine ended request {request.request_id} with {completion.finish_reason!r}"
            )
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
            stop_text=(completion.stop_reason if isinstance(completion.stop_reason, str) else None),
            routed_experts=self._routed_experts(completion),
        )

    def _routed_experts(self, completion: Any) -> RoutedExperts | None:
        if self.routing is None or completion.routed_experts is None:
            return None
        # vLLM returns a row for every layer, dense ones too; on the wire a choice is one byte.
        return np.ascontiguousarray(
            completion.routed_experts[:, self.routing.layers], dtype=np.uint8
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
        """Pause, let every worker `load` (see GeneratorWorker.apply), label, resume.

        Returns the pause in seconds: from the end of the last step, or the request if the engine
        was idle, until the order to resume. A worker that failed to load holds no version: the
        error must end the process.
        """
        core = self._llm.engine_core
        # Under this lock nothing is submitted, so every request gets its salt from the version that
        # begins it.
        async with self._admission, asyncio.timeout(self._timeout_seconds):
            asked_at = time.monotonic()
            # vLLM ends the running step, then keeps all requests with their KV until it may resume.
            await core.pause_scheduler_async(mode="keep", clear_cache=False)
            loaded: tuple[list[str], float, float] = (await self.call(load, *arguments))[0]
            decoding, last_step_at, self.load_seconds = loaded
            # Requests without a token, or with KV being rebuilt: they are submitted again under the
            # new version.
            waiting = self._live.keys() - set(decoding)
            # They share a socket, so they take effect in this order, and the engine waits for one
            # round trip only.
            await asyncio.gather(
                self._llm.abort(waiting, internal=True),
                core.set_weight_version_async(str(version)),
                core.resume_scheduler_async(),
            )
            self.version = version
            self._applied.append(version)
            self._admission.notify_all()
        return time.monotonic() - max(asked_at, last_step_at)

    async def withdraw(self) -> None:
        """The weights may not be used any more: nothing new is submitted until the next update."""
        async with self._admission:
            self.version = None

    async def call(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method of the worker extension on every worker, within the deadline."""
        async with asyncio.timeout(self._timeout_seconds):
            answers: list[Any] = await self._llm.collective_rpc(method, args=arguments)
            return answers

    async def observe(self) -> None:
        """Refresh `counts` and the `rebuilds` of every request."""
        counts, rebuilds = (await self.call("take_observations"))[0]
        self.counts = EngineCounts(*counts)
        for request_id, num_output_tokens, num_kept in rebuilds:
            if (request := self._requests_by_id.get(request_id)) is not None:
                request.rebuilds.append((num_output_tokens, num_kept))

    def decode(self, token_ids: list[int]) -> str:
        """Text of a completion.

        Special tokens stay, because in some vocabularies the end of thinking is one.
        """
        return str(self._llm.get_tokenizer().decode(token_ids, skip_special_tokens=False))

    def shutdown(self) -> None:
        """End the child process. Nothing may be called afterwards."""
        # vLLM stops killing if a process has ended before its name is asked for; the folder's
        # warden kills the rest.
        with suppress(psutil.NoSuchProcess):
            self._llm.shutdown(timeout=2.0)
        self._llm = None
        self._folder.close()

    async def _warm_up(self) -> None:
        """Sample two tokens from the skeleton: first one request, then two together.

        Raises TimeoutError.
        """
        # vLLM compiles its sampler at the first request, and again for any number of requests at
        # the second. A member that is silent for that long would be fenced. The deadline is for a
        # busy machine.
        async with asyncio.timeout(600.0):
            for num_requests in (1, 2):
                # The salt keeps these KV blocks from being reused by rollouts.
                requests = [
                    EngineRequest(
                        [0],
                        max_tokens=2,
                        sampling=Sampling(),
                        seed=None,
                        salt=lambda version: "warm-up",
                    )
                    for _ in range(num_requests)
                ]
                outputs = [await self._submit(request, SKELETON) for request in requests]
                for request, output in zip(requests, outputs, strict=True):
                    await output.get()
                    del self._live[request.request_id]

    async def _submit(self, request: EngineRequest, version: PolicyVersion) -> Any:
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input

        try:
            parameters = request.sampling_parameters()
            self._check_rows(request.token_ids)
            prompt = tokens_input(request.token_ids, cache_salt=request.salt(version))
            outputs = await self._llm.add_request(
                str(next(self._ids)), prompt, parameters, lora_request=self._adapter
            )
        except VLLMClientError as error:
            # Characters of vLLM's message, which may hold the request
            sentence = " ".join(str(error).split())[:300]
            raise BadRequestError(f"{len(request.token_ids)} prompt tokens: {sentence}") from error
        request.first_version = version
        request.request_id = outputs.request_id
        self._live[outputs.request_id] = request
        self._requests_by_id[outputs.request_id] = request
        return outputs

    def _check_rows(self, token_ids: list[int]) -> None:
        """Raises BadRequestError for a token without an embedding: the engine would end at it."""
        if self._num_rows is not None and (largest := max(token_ids)) >= self._num_rows:
            raise BadRequestError(
                f"{len(token_ids)} prompt tokens: the model has no embedding for token {largest}, "
                f"{self.decode([largest])!r}"
            )

    async def _abort(self, request: EngineRequest) -> None:
        async with self._admission:
            # A request that still waits for a version has to see that it was aborted.
            self._admission.notify_all()
        if request.request_id:
            llm = self._llm
            # vLLM ends the request with the tokens that have arrived here (`held_outputs`).
            with suppress(Exception):  # the engine has ended, or is stuck
                async with asyncio.timeout(self._timeout_seconds):
                    await llm.engine_core.call_utility_async("send_held", [request.request_id])
            await llm.abort(request.request_id, internal=True)
