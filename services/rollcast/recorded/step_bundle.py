"""One recorded step: `RUN/recorded/step-12/step.json`, its arrays in `arrays.safetensors`, and its
weights in `RUN/recorded/weights/1.11.safetensors`.

    bundle = rollcast.load_step("runs/demo/recorded/step-12")
    bundle.figures["loss"], bundle.groups[0].rollouts[0].reward, bundle.sequences[0].logprobs
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rollcast.config.errors import UserError
from rollcast.recorded.array_file import Arrays, load_arrays
from rollcast.recorded.plain_values import from_plain, to_plain
from rollcast.rollouts.records import PromptTask, RolloutGroup
from rollcast.wire.version import PolicyVersion

RECORD_FILE = "step.json"
ARRAYS_FILE = "arrays.safetensors"
WEIGHTS = "weights"
FORMAT = "1"
"""Format of both files, as text."""
FloatArray = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSequence:
    """One token sequence that was trained on: its place in the batch, and what its loss was
    computed from.

    T of its L tokens carry loss. A step that did not finish lacks the last four.
    """

    group: int
    """Index in `groups`."""
    rollout: int
    """Index in the group's `rollouts`."""
    number: int
    """0 = the rollout's own tokens, n = branch n - 1 of its episode."""
    rank: int
    """The trainer's rank that computed it."""
    micro_batch: int
    """Index of that rank's forward pass."""
    loss_mask: NDArray[np.bool_]
    """[L] True for tokens that carry loss. An episode's sequence ends with its last such token."""
    advantage: float
    weight: float
    """Weight of each loss token in the batch's objective."""
    kl_factor: float
    """Factor of the coefficient of the KL penalty."""
    entropy_factor: float
    """Factor of the coefficient of the entropy bonus."""
    token_advantages: FloatArray | None = None
    """[L] advantage of each token, in place of `advantage`. None = all tokens have that."""
    logprobs: FloatArray | None = None
    """[T] nats, of the trainer before the step. The generator's are those of the rollout."""
    entropy: FloatArray | None = None
    """[T] nats, of the trainer's distribution before the step."""
    reference_logprobs: FloatArray | None = None
    """[T] nats, of the reference policy. None without a KL penalty."""
    trained_advantages: NDArray[np.float64] | None = None
    """[T] with the part of a teacher that the ranks hold. None without one."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBundle:
    """One optimizer step as it was recorded. `rollcast.load_step` opens it."""

    run: str
    step: int
    """The step that it made, or would have made."""
    version: PolicyVersion
    """Version of the weights before it."""
    at: float
    """Unix seconds at its end."""
    conditions: tuple[str, ...]
    """Why it was kept (`record.on`); empty = because of `record.every_steps`, or as one of the last
    before such a step."""
    error: str
    """How the trainer failed in or after the step; empty = it did not."""
    world_size: int
    """Ranks of the trainer."""
    waited_seconds: float
    """Seconds that the step waited for the recorder."""
    settings: dict[str, Any]
    """The run file as it was then, without its secrets."""
    figures: dict[str, Any]
    """Loss, gradient norm and the other results of the update. Empty if it did not finish."""
    digests_before: dict[str, str]
    """By name a checksum of each trained weight before the step; empty if it did not begin."""
    digests_after: dict[str, str]
    """By name a checksum of each trained weight after the step; empty if it did not finish."""
    tasks: list[PromptTask]
    """The task of each group."""
    groups: list[RolloutGroup]
    """The groups of the batch with tokens, log-probs, versions, KV marks, masks, experts, rewards
    and verdicts, whether or not they were trained on."""
    sequences: list[RecordedSequence]
    """The sequences that were trained on."""
    teacher_logprobs: dict[str, list[list[FloatArray] | None]] = field(default_factory=dict)
    """By task sequence, an endpoint's log-probs of each rollout's sequences. Empty without one."""
    weights_kept: Literal["none", "step", "versions"] = "none"
    """The setting `record.weights`."""
    origin: str | None = None
    """Digest of the machine, user and folder that recorded it (`recorded/origin.py`). None = not
    known."""
    path: Path = Path()
    """Folder of the bundle."""

    @property
    def versions(self) -> tuple[PolicyVersion, ...]:
        """Versions that sampled a token of the batch, oldest first."""
        return tuple(sorted({version for group in self.groups for version in group.versions}))

    @property
    def needed_versions(self) -> tuple[PolicyVersion, ...]:
        """Versions without whose weights a part of it cannot be replayed."""
        if self.weights_kept == "none":
            return ()
        versions = {self.version}
        if self.weights_kept == "versions":
            versions.update(self.versions)
        return tuple(sorted(versions))

    @property
    def kept_versions(self) -> tuple[PolicyVersion, ...]:
        """Versions whose weights are there, of this step and of others, oldest first."""
        files = (self.path.parent / WEIGHTS).glob("*.safetensors")
        return tuple(sorted(PolicyVersion.parse(file.stem) for file in files))

    def weights_file(self, version: PolicyVersion) -> Path:
        """File of a version's weights; it need not exist."""
        return self.path.parent / WEIGHTS / f"{version}.safetensors"

    def load_weights(self, version: PolicyVersion) -> tuple[Arrays, dict[str, str]]:
        """The trained weights of a version in float32, and their checksums when they were written,
        by name. Raises UserError if they are not there or not whole.
        """
        return load_arrays(self.weights_file(version))


def load_step(path: Path) -> StepBundle:
    """The recorded step in a folder. Raises UserError if it cannot be read, or is damaged."""
    arrays, metadata = load_arrays(path / ARRAYS_FILE)
    try:
        with (path / RECORD_FILE).open("rb") as file:
            # 4,096 rollouts in thousands of legs take less than 1 GiB
            record = json.loads(file.read(1 << 30))
        if metadata.get("format") != FORMAT:
            raise UserError(f"{path}: is of another format; use the Rollcast that recorded it")
        bundle: StepBundle = from_plain(StepBundle, record, arrays)
        _check(bundle)
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read ({error.strerror}); give the folder of a recorded step, as "
            "RUN/recorded/step-12"
        ) from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(
            f"{path}: is damaged ({type(error).__name__}: {str(error)[:200]}); choose another step"
        ) from error
    return replace(bundle, path=path)


def _check(bundle: StepBundle) -> None:
    """Raises ValueError, or IndexError, for parts that contradict each other."""
    if not bundle.sequences or len(bundle.tasks) != len(bundle.groups):
        raise ValueError("a group has no task, or nothing was trained on")
    for name, figure in bundle.figures.items():
        if not isinstance(figure, (int, float, type(None))):
            raise ValueError(f"figures.{name} is no number")
    required = ("loss", "grad_norm", "learning_rate")
    if bundle.figures and None in map(bundle.figures.get, required):
        raise ValueError("figures lack the loss, the gradient norm or the learning rate")
    for group in bundle.groups:
        for rollout in group.rollouts:
            for sequence in rollout.sequences:
                length = len(sequence.token_ids)
                spans = [(span.start, span.end) for span in sequence.version_spans]
                spans += [(leg.start, leg.end) for leg in sequence.legs]
                is_outside = any(not 0 <= start <= end <= length for start, end in spans)
                if len(sequence.logprobs) != length or is_outside:
                    raise ValueError("a rollout has spans or log-probs beyond its tokens")
    for item in bundle.sequences:
        if min(item.group, item.rollout, item.number) < 0:
            raise ValueError("a sequence has a negative index")
        sequence = bundle.groups[item.group].rollouts[item.rollout].sequences[item.number]
        if item.loss_mask.dtype != np.bool_:
            raise ValueError("a loss mask holds other values than true and false")
        credited = item.loss_mask if item.token_advantages is None else item.token_advantages
        if not len(credited) == len(item.loss_mask) <= len(sequence.token_ids):
            raise ValueError("a sequence has a mask or advantages beyond its tokens")


def encode_step(bundle: StepBundle) -> tuple[bytes, Arrays]:
    """The content of step.json, and the arrays that it names."""
    arrays: Arrays = {}
    record = {
        item.name: to_plain(getattr(bundle, item.name), item.name, arrays)
        for item in fields(bundle)
        if item.name != "path"
    }
    return json.dumps(record).encode(), arrays
