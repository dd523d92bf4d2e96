"""Outputs of a request that is read at its end only are held in the engine's process, and sent as
one.

vLLM's engine sends a message for each of its steps, in which each request has its token and three
arrays. Decoding these messages was two fifths of the processor time of the generator's front end.

    step -> held -> at the request's end, at its 32nd output, or by `send_held` -> sent
                 -> at its abort -> dropped

A pause of the engine sends everything, so that the outputs of a message are of one version. vLLM's
front end ends an aborted request with the tokens that it has received: call `send_held` before.
It appends log-probs token by token, and here those of an output together.
"""

import functools
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np


@functools.cache
def hold_outputs() -> None:
    """Let vLLM's engine core hold outputs, and give it the method `send_held`; let the front end
    append the log-probs of an output together.
    """
    from vllm.v1.engine import EngineCoreOutputs
    from vllm.v1.engine.core import EngineCoreProc
    from vllm.v1.engine.logprobs import LogprobsProcessor

    core_class: Any = EngineCoreProc
    held_outputs = HeldOutputs()
    finish_pause = core_class._finish_pause
    abort_requests = core_class.abort_requests

    def send_held(core: Any, request_ids: list[str] | None = None) -> None:
        """Send the held outputs of these requests. None = of all."""
        outputs = held_outputs.take(request_ids)
        # The front end handles at most 128 outputs of a message before it lets other coroutines
        # run, and an abort must not come between.
        for start in range(0, len(outputs), 128):
            message = EngineCoreOutputs(
                outputs=outputs[start : start + 128], weight_version=core._weight_version
            )
            # The only front end has the number 0
            core.output_queue.put_nowait((0, message))

    def send_and_finish_pause(core: Any, clear_cache: bool) -> None:
        send_held(core)
        finish_pause(core, clear_cache)

    def abort_and_drop(core: Any, request_ids: list[str]) -> None:
        abort_requests(core, request_ids)
        held_outputs.take(request_ids)

    for name in ("step", "step_with_batch_queue"):
        setattr(core_class, name, _holding_step(getattr(core_class, name), held_outputs))
    core_class.send_held = send_held
    core_class._finish_pause = send_and_finish_pause
    core_class.abort_requests = abort_and_drop
    processor_class: Any = LogprobsProcessor
    processor_class._update_sample_logprobs = _appending_together(
        processor_class._update_sample_logprobs
    )


def _holding_step(step: Callable[[Any], Any], held_outputs: "HeldOutputs") -> Callable[[Any], Any]:
    def step_and_hold(core: Any) -> tuple[dict[int, Any] | None, bool]:
        messages, model_executed = step(core)
        for message in (messages or {}).values():
            message.outputs = held_outputs.hold(message.outputs, core.scheduler.requests)
        # The front end ignores the others.
        full_messages = {
            client: message
            for client, message in (messages or {}).items()
            if message.outputs or message.scheduler_stats
        }
        return full_messages, model_executed

    return step_and_hold


def _appending_together(append_each: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    from vllm.logprobs import FlatLogprobs

    @functools.wraps(append_each)
    def append(processor: Any, lists: Any) -> None:
        flat = processor.logprobs
        is_sampled_token_alone = processor.num_logprobs == 0 and processor.tokenizer is None
        if not is_sampled_token_alone or not isinstance(flat, FlatLogprobs):
            append_each(processor, lists)
            return
        # The first column is the sampled token's.
        logprobs = lists.logprobs[:, 0].tolist()
        flat.start_indices += range(len(flat), len(flat) + len(logprobs))
        flat.end_indices += range(len(flat.end_indices) + 1, len(flat) + 1)
        flat.token_ids += lists.logprob_token_ids[:, 0].tolist()
        flat.logprobs += logprobs
        flat.ranks += lists.sampled_token_ranks.tolist()
        flat.decoded_tokens += [None] * len(logprobs)
        processor.cumulative_logprob += sum(logprobs)

    return append


class HeldOutputs:
    """Outputs of unfinished requests, at most 32 of each."""

    def __init__(self) -> None:
        from vllm.sampling_params import RequestOutputKind

        self._outputs: dict[str, list[Any]] = {}
        self._read_at_end = RequestOutputKind.FINAL_ONLY

    def hold(self, outputs: list[Any], requests: Mapping[str, Any]) -> list[Any]:
        """Hold the outputs of one step; returns those that are to be sent now.

        `requests`: the unfinished requests by their number, as the scheduler has them.
        """
        due: list[Any] = []
        for output in outputs:
            request_id = output.request_id
            request_outputs = self._outputs.setdefault(request_id, [])
            request_outputs.append(output)
            # 32: an output takes about a kilobyte of memory.
            if (
                output.finish_reason is not None
                or len(request_outputs) == 32
                or not self._is_read_at_its_end(requests[request_id].sampling_params)
            ):
                due += self.take([request_id])
        return due

    def take(self, request_ids: list[str] | None = None) -> list[Any]:
        """Remove the held outputs of these requests, None = of all; returns one output for each
        request that has any.
        """
        names = list(self._outputs) if request_ids is None else request_ids
        return [joined(outputs) for name in names if (outputs := self._outputs.pop(name, None))]

    def _is_read_at_its_end(self, parameters: Any) -> bool:
        # The front end looks for the texts that end a request, and must find one soon.
        return parameters.output_kind is self._read_at_end and not parameters.stop


def joined(outputs: list[Any]) -> Any:
    """One EngineCoreOutput of vLLM in place of consecutive ones of a request.

    Fields that are not joined are those of the last one: Rollcast asks for no other results that
    come before the end of a request.
    """
    last = outputs[-1]
    if len(outputs) == 1:
        return last
    last.new_token_ids = list(chain.from_iterable(output.new_token_ids for output in outputs))
    # How much of the prompt was cached: only the first output has it.
    last.prefill_stats = outputs[0].prefill_stats
    logprobs = [output.new_logprobs for output in outputs if output.new_logprobs is not None]
    if logprobs:
        # Token ids, log-probs and ranks; the fourth field is for several requests.
        fields = list(zip(*logprobs, strict=True))[:3]
        last.new_logprobs = type(logprobs[0])(*map(np.concatenate, fields))
    experts = [output.routed_experts for output in outputs if output.routed_experts is not None]
    if experts:
        last.routed_experts = np.concatenate(experts)
    return last
