"""The form of a check before a start, and of its findings."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Protocol

from rollcast.config.errors import UserError
from rollcast.config.run import RunConfig
from rollcast.config.sentences import Wrong
from rollcast.local.devices import usable_gpus
from rollcast.local.model_name import find_model_files
from rollcast.memory.device import Device
from rollcast.memory.host import NO_LIMITS, HostLimits
from rollcast.memory.plan import MemoryPlan
from rollcast.runfolder.files import Place, checkpoint_place
from rollcast.tasks.prompt import Prompt
from rollcast.tasks.prompts import PromptSplit
from rollcast.tasks.tokenizer_file import TokenizerFile


class Reach(IntEnum):
    """How much can be looked at; each value includes those before it."""

    SETTINGS = 0
    """The run will be on another machine."""
    MACHINE = 1
    """Files, cores and GPUs of this machine too."""
    START = 2
    """The run starts now: ports and Redis too."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One or more sentences for the user."""

    words: str
    refusal: UserError | None = None
    """The run cannot start. None = a warning, with which it can."""


@dataclass
class Start:
    """A run file that is to be started, and what earlier checks have read for later ones."""

    config: RunConfig
    reach: Reach = Reach.MACHINE
    monitor: bool = False
    """A Prometheus is started with the run."""
    resume: bool | None = None
    """Whether the run is continued. None = the run's folder is not looked at."""
    mistakes: Sequence[Wrong] = ()
    """Settings that are known to be wrong, in whose place `config` has the default."""
    device: Device | None = None
    """The device that must hold the run. None = memory is not checked."""
    ranks: int | None = None
    """Trainer ranks. None = local.trainer_ranks."""
    model_config: Path | None = None
    """A config.json instead of model.path's."""
    host: HostLimits = NO_LIMITS
    expected: Callable[[MemoryPlan], Iterable[str]] | None = None
    """Warnings about a plan that fits, by the user's rates and lengths. None = by usual ones."""
    split: PromptSplit = field(init=False)
    """The run's prompts, once they are read."""
    plan: MemoryPlan | None = field(init=False, default=None)
    """None = the memory is not checked yet, or cannot be counted."""
    changes: list[str] = field(init=False, default_factory=list)
    """A line for each setting and rule that a resume changes."""

    @property
    def mistaken(self) -> set[str]:
        """The settings that `mistakes` are about."""
        return {
            name for mistake in self.mistakes for name in (mistake.field, *mistake.related_fields)
        }

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """The GPUs of this machine that the run may use."""
        return usable_gpus()

    @cached_property
    def checkpoints(self) -> Place:
        return checkpoint_place(self.config.run_folder, self.config.trainer.checkpoints)

    @property
    def rewarded_prompts(self) -> list[Prompt]:
        """The prompts that are graded in the run, training prompts first."""
        return [*chain(self.split.train, *self.split.downstream.values())]

    @cached_property
    def tokenizer(self) -> TokenizerFile | None:
        """The model's tokenizer; None if this machine does not have it."""
        path = self.config.model.path
        folder = find_model_files(path)
        return None if folder is None else TokenizerFile.read(folder, path)


class StartCheck(Protocol):
    """A module of this folder."""

    @property
    def SETTINGS(self) -> tuple[str, ...]:  # noqa: N802  # a constant of the module
        """Settings and groups without which it cannot be made: it is left out if one of them is
        refused already.
        """
        ...

    def check(self, start: Start) -> Iterable[Finding] | None:
        """A UserError that it raises is a refusal too. None = it finds nothing else."""
        ...


def refusals(sentences: Iterable[str]) -> list[Finding]:
    """Findings with which the run cannot start."""
    return [Finding(sentence, UserError(sentence)) for sentence in sentences]


def warnings(sentences: Iterable[str]) -> list[Finding]:
    """Findings with which the run can start."""
    return [Finding(sentence) for sentence in sentences]
