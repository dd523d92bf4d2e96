"""Reward functions written for TRL or verl, called as those call them, with one completion.

TRL     reward(prompts, completions, **columns) -> [reward]
            each argument is a list of one; columns: the row's fields
verl    compute_score(data_source, solution_str, ground_truth, extra_info)
            -> reward, or a mapping with `score`
        compute_score(data_sources, solution_strs, ground_truths, extra_infos)
            -> a list of such, in batches
ours    grade(completion, row) -> reward
"""

import inspect
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

from rollcast.config.errors import UserError

_TRL_OWN = frozenset({"prompt", "completion", "prompts", "completions"})
"""Fields that TRL does not hand over as columns."""


def adapt_signature(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; if the names of its arguments are TRL's or verl's, a function of
    (completion, row).
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        return function
    takes_more = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    if "solution_str" in parameters:
        return _around(function, _for_verl, _verl_reward, takes_more=False)
    if "solution_strs" in parameters:
        return _around(function, _for_verl_batch, _verl_batch_reward, takes_more=False)
    if "completions" in parameters and "row" not in parameters:
        return _around(function, _for_trl, _trl_reward, takes_more=takes_more)
    return function


def _around(
    function: Callable[..., Any],
    offered: Callable[[str, Mapping[str, Any]], dict[str, Any]],
    reward: Callable[[Any], Any],
    *,
    takes_more: bool,
) -> Callable[[str, Mapping[str, Any]], Any]:
    parameters = inspect.signature(function).parameters
    named = {
        name: signature_parameter
        for name, signature_parameter in parameters.items()
        if signature_parameter.kind
        in (signature_parameter.POSITIONAL_OR_KEYWORD, signature_parameter.KEYWORD_ONLY)
    }

    def grade(completion: str, row: Mapping[str, Any]) -> Any:
        arguments = offered(completion, row)
        for name, parameter in named.items():
            if parameter.default is parameter.empty and name not in arguments:
                raise KeyError(name)
        return reward(
            function(
                **{name: item for name, item in arguments.items() if takes_more or name in named}
            )
        )

    grade.__wrapped__ = function  # type: ignore[attr-defined]  # where `inspect.unwrap` finds the user's own
    return grade


def _for_trl(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """A prompt that is a chat makes the completion one too."""
    prompt = row.get("prompt", "")
    answer = (
        [{"role": "assistant", "content": completion}] if isinstance(prompt, list) else completion
    )
    columns = {name: [item] for name, item in row.items() if name not in _TRL_OWN}
    return columns | {"prompts": [prompt], "completions": [answer]}


def _trl_reward(result: Any) -> Any:
    if inspect.iscoroutine(result):
        result.close()
        raise UserError(
            "it is asynchronous, and a verifier is not; make it a plain function (def), or a "
            "reward service"
        )
    return _only(result, "TRL")


def _for_verl(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The truth is where verl's data sets have it, else in the row's field ground_truth
    or answer.
    """
    arguments: dict[str, Any] = {
        "solution_str": completion,
        "extra_info": row.get("extra_info") or {},
    }
    model = row.get("reward_model")
    for fields, name in ((model, "ground_truth"), (row, "ground_truth"), (row, "answer")):
        if isinstance(fields, Mapping) and fields.get(name) is not None:
            arguments["ground_truth"] = fields[name]
            break
    if "data_source" in row:
        arguments["data_source"] = row["data_source"]
    return arguments


def _for_verl_batch(completion: str, row: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}s": [item] for name, item in _for_verl(completion, row).items()}


def _verl_batch_reward(result: Any) -> Any:
    return _verl_reward(_only(result, "verl"))


def _only(result: Any, system: str) -> Any:
    """The one reward of a list. Raises UserError."""
    if isinstance(result, str | Mapping) or not hasattr(result, "__getitem__") or len(result) != 1:
        raise UserError(
            f"it has {system}'s arguments and returned {reprlib.repr(result)} for one completion, "
            "needs a list of one reward"
        )
    return result[0]


def _verl_reward(result: Any) -> Any:
    if isinstance(result, Mapping):
        if "score" not in result:
            raise UserError(
                f"it has verl's arguments and returned {reprlib.repr(result)}, which has no "
                "'score'; add it"
            )
        return result["score"]
    return result[0] if isinstance(result, list | tuple) and result else result
