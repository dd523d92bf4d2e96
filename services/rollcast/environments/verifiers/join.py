"""A trace of verifiers and the record of the same session, joined: answer by answer, with all
answers before it.

    record    turn 0 -> turn 1 -> turn 2                 tokens, log-probs, spans
    trace     answer 0 -> answer 1 -> answer 2           reward, branches

Answers are known by their text and calls. If the two do not hold the same, it is not known what the
reward is for.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rollcast.environments.traces import RecordTurn
from rollcast.environments.verifiers.adapter import answer_digest
from rollcast.environments.verifiers.helper import VerifiersTrace
from rollcast.rollouts.records import EpisodeEnd

STOPS = {
    "max_turns": EpisodeEnd.TURNS,
    "max_input_tokens": EpisodeEnd.TOKENS,
    "max_output_tokens": EpisodeEnd.TOKENS,
    "max_total_tokens": EpisodeEnd.TOKENS,
    "agent_timeout": EpisodeEnd.SECONDS,
}
"""Limits of verifiers' own that end an episode before it was finished."""


def untrained_turns(turns: Sequence[RecordTurn], trace: VerifiersTrace) -> set[int] | None:
    """Numbers of the turns that verifiers does not train: those of a summary that came to nothing,
    say.

    `turns`: those that a client read, the oldest first. None = record and trace disagree.
    """
    numbers = {turn.number: index for index, turn in enumerate(turns)}
    parents = [
        None if turn.parent_turn is None else numbers.get(turn.parent_turn) for turn in turns
    ]
    recorded = _chain_digests([message_digest(turn.assistant_message) for turn in turns], parents)
    traced = _chain_digests(
        [answer.digest for answer in trace.answers],
        [trace_answer.parent_index for trace_answer in trace.answers],
    )
    if recorded is None or traced is None or Counter(recorded) != Counter(traced):
        return None
    trained = {
        chain
        for chain, chain_answer in zip(traced, trace.answers, strict=True)
        if chain_answer.is_trained
    }
    return {
        turn.number for turn, chain in zip(turns, recorded, strict=True) if chain not in trained
    }


def message_digest(message: Mapping[str, Any] | None) -> str:
    """The digest of an answer.

    None = its history was given as tokens, and verifiers has another.
    """
    if message is None:
        return ""
    calls = [
        (str(call["id"]), str(call["function"]["name"]), str(call["function"]["arguments"]))
        for call in message.get("tool_calls") or ()
    ]
    return answer_digest(message.get("content"), calls)


def _chain_digests(digests: Sequence[str], parents: Sequence[int | None]) -> list[str] | None:
    """A digest of each answer and all before it. None = an answer follows a later one."""
    chains: list[str] = []
    for digest, parent in zip(digests, parents, strict=True):
        if parent is not None and not 0 <= parent < len(chains):
            return None
        previous_chain = "" if parent is None else chains[parent]
        chains.append(
            hashlib.blake2b(f"{previous_chain}/{digest}".encode(), digest_size=16).hexdigest()
        )
    return chains
