"""Makes a recording of one client's episode, without the client's own texts.

Contents of messages, descriptions, paths, identifiers and texts of more than 40 characters become
four words that depend on the text alone, so that a history still begins with the one before. Roles,
names, types, structure and the model's own texts are kept. Metadata of a client is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.clients.table import Client
from rollcast.generator.vllm.engine import Engine
from rollcast.generator.vllm.engine_request import EngineRequest, Sampled
from rollcast.rollouts.records import Episode, Rollout
from rollcast.telemetry.exporter import Exporter
from testkit.generator.client_recordings import (
    MODEL,
    SAMPLING_PATHS,
    ClientRecording,
    RecordedRequest,
    SeenTurn,
)

SCRIPTED_MODEL = "model"
"""Name of the scripted model's folder, which the endpoint serves it by."""
MAX_KEPT_CHARACTERS = 40
WORDS = (
    "alder", "apple", "ash", "aspen", "beech", "birch", "box", "cedar", "cherry", "chestnut",
    "cypress", "elder", "elm", "fir", "hazel", "holly", "hornbeam", "juniper", "larch", "lime",
    "maple", "medlar", "oak", "olive", "pear", "pine", "plum", "poplar", "rowan", "spruce",
    "willow", "yew",
)  # fmt: skip
MODELS_ITEMS = frozenset({"function_call", "custom_tool_call", "tool_use", "reasoning"})
TEXT_FIELDS = frozenset({"content", "description", "output", "prompt_cache_key", "text", "title"})
METADATA_FIELDS = frozenset({"client_metadata", "metadata"})
PATH = re.compile(r"(^|[\s'\"=(:])/\w+")
IDENTIFIER = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-")


COUNTED = {
    "further_sequences": ("rollcast_endpoint_sequences_total", "reason"),
    "refused": ("rollcast_endpoint_refused_requests_total", "code"),
    "replaced": ("rollcast_endpoint_replaced_settings_total", "environment"),
    "untrained_tokens": ("rollcast_endpoint_single_tokens_total", ""),
}
Counts = dict[str, dict[str, float]]


def endpoint_counts(exporter: Exporter) -> Counts:
    """The endpoint's counters so far, by label."""
    return {name: _count(exporter, *counted) for name, counted in COUNTED.items()}


def _count(exporter: Exporter, metric: str, label: str) -> dict[str, float]:
    counts: dict[str, float] = {}
    for family in exporter.registry.collect():
        for sample in family.samples:
            if sample.name == metric and sample.value:
                key = sample.labels.get(label, "all")
                counts[key] = counts.get(key, 0.0) + sample.value
    return counts


@dataclass(frozen=True, slots=True)
class SampledText:
    """The result of one request to the engine."""

    text: str
    is_complete: bool


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """An episode, with all that was sampled in it."""

    episode: Episode
    samples: tuple[SampledText, ...]
    counts: Counts


class Recorder:
    """The episodes of one client with an engine, as they are played one after the other."""

    def __init__(self, client: Client, engine: Engine, exporter: Exporter) -> None:
        self._client = client
        self._exporter = exporter
        self._samples: list[SampledText] = []
        self._counts = endpoint_counts(exporter)
        self._episodes: list[PlayedEpisode] = []
        sample = engine.sample

        async def noted_sample(request: EngineRequest) -> Sampled:
            sampled = await sample(request)
            if sampled.token_ids:
                text = engine.decode(sampled.token_ids)
                self._samples.append(SampledText(text, sampled.finish == "stop"))
            return sampled

        engine.sample = noted_sample  # type: ignore[method-assign]

    def end_episode(self, rollout: Rollout) -> None:
        assert rollout.episode is not None
        counts = endpoint_counts(self._exporter)
        self._episodes.append(
            PlayedEpisode(rollout.episode, tuple(self._samples), _difference(counts, self._counts))
        )
        self._samples.clear()
        self._counts = counts

    def longest(self, folder: Path) -> ClientRecording:
        """The recording of the episode with most turns. `folder`: of the proxy's files."""
        files = sorted(folder.iterdir())
        episode, file = max(
            zip(self._episodes, files, strict=True), key=lambda pair: len(pair[0].episode.turns)
        )
        return ClientRecording(
            self._client.name,
            self._client.packages,
            _requests(file, episode.samples),
            1 + len(episode.episode.branches),
            tuple(
                SeenTurn(turn.sequence, turn.tool_calls, turn.malformed_calls)
                for turn in episode.episode.turns
            ),
            episode.counts["further_sequences"],
            episode.counts["refused"],
            sum(episode.counts["replaced"].values()),
        )


def _difference(counts: Counts, earlier: Counts) -> Counts:
    return {
        name: {
            label: value - earlier[name].get(label, 0.0)
            for label, value in labels.items()
            if value > earlier[name].get(label, 0.0)
        }
        for name, labels in counts.items()
    }


def _requests(file: Path, samples: Sequence[SampledText]) -> tuple[RecordedRequest, ...]:
    """`file`: requests in the order of their ends, as `samples` are."""
    unused_samples = list(samples)
    requests = []
    for request in map(json.loads, file.read_text().splitlines()):
        # Others ask whether the server is there.
        if not request["path"].startswith("/v1/"):
            continue
        is_sampled = request["path"] in SAMPLING_PATHS and request["status"] == 200
        sample = unused_samples.pop(0) if is_sampled else None
        recorded = RecordedRequest(
            request["method"],
            request["path"],
            request["headers"],
            neutral_body(request["body"]),
            request["status"],
            None if sample is None else sample.text,
            sample is None or sample.is_complete,
        )
        requests.append((request["number"], recorded))
    assert not unused_samples, f"{len(unused_samples)} samples are of no request"
    return tuple(request for _, request in sorted(requests, key=lambda pair: pair[0]))


def neutral_body(body: dict[str, Any] | None) -> dict[str, Any] | None:
    """A request's body without texts of the client."""
    if body is None:
        return None
    neutral: dict[str, Any] = _neutral(body)
    if "model" in neutral:
        neutral["model"] = str(body["model"]).replace(SCRIPTED_MODEL, MODEL)
    return neutral


def _neutral(value: Any) -> Any:
    if isinstance(value, str):
        is_kept = len(value) <= MAX_KEPT_CHARACTERS
        is_kept = is_kept and not PATH.search(value) and not IDENTIFIER.search(value)
        return value if is_kept else filler(value)
    if isinstance(value, list):
        return [_neutral(element) for element in value]
    if not isinstance(value, dict):
        return value
    # A property of a schema may be called type.
    if value.get("role") == "assistant" or str(value.get("type")) in MODELS_ITEMS:
        return value
    return {
        name: filler(member)
        if name in TEXT_FIELDS and isinstance(member, str) and member
        else _neutral(member)
        for name, member in value.items()
        if name not in METADATA_FIELDS
    }


def filler(text: str) -> str:
    """Four words in place of a text; the same for the same text."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=4).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest)
