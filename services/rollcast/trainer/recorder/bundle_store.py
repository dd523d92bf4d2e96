"""The recorded steps of a run on its disk, within record.max_bytes. One thread.

What goes first, until the rest fits: ordinary steps, the older first; weights that no recorded step
needs, of which the steps in memory may still have need; steps with a condition, the least bad
first. The newest step stays, and a version's weights as long as one of its steps.
"""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rollcast.config.access_modes import open_for_group
from rollcast.recorded.array_file import write_arrays
from rollcast.recorded.origin import folder_origin
from rollcast.recorded.recorded_index import IndexEntry, RecordedIndex
from rollcast.recorded.step_bundle import (
    ARRAYS_FILE,
    FORMAT,
    RECORD_FILE,
    WEIGHTS,
    StepBundle,
    encode_step,
)
from rollcast.runfolder.files import RECORDED
from rollcast.runfolder.writing import make_folder
from rollcast.trainer.learner.whole_weights import array_digest
from rollcast.wire.version import PolicyVersion

_STEP_NAME = re.compile(r"step-\d+(-skipped|-failed)?")


@dataclass(eq=False)
class BundleStore:
    """Every method raises OSError or UserError if the disk refuses."""

    run_folder: Path
    max_bytes: int
    num_older_versions: int
    """Versions before that of a step whose weights it needs: a label may be wrong, so that its
    tokens' own do not decide."""
    ring_length: int
    """Steps in memory that may be written later."""
    index: RecordedIndex = field(default_factory=RecordedIndex)

    def __post_init__(self) -> None:
        self._folder = self.run_folder / RECORDED
        self._weights = self._folder / WEIGHTS

    def open(self) -> None:
        """Go on with the steps that an earlier trainer kept, and remove half-written ones."""
        make_folder(self._weights)
        for path in self._folder.glob(".step-*"):
            shutil.rmtree(path)
        for path in self._weights.glob("*.tmp"):
            path.unlink()
        listed = {entry.name: entry for entry in RecordedIndex.read(self.run_folder).steps}
        present = {path.name for path in self._folder.iterdir() if _STEP_NAME.fullmatch(path.name)}
        # Of a trainer that was killed before it wrote the list, or if that cannot be read
        unlisted = [self._entry_of_folder(name) for name in present - listed.keys()]
        unlisted.sort(key=lambda entry: entry.step)
        kept_entries = [entry for name, entry in listed.items() if name in present]
        self.index = RecordedIndex([*unlisted, *kept_entries])

    def add_step(
        self, bundle: StepBundle, name: str, badness: float, *, is_newest: bool = True
    ) -> int:
        """Write a step and make room; returns how many steps and versions were removed for it.

        `is_newest`: not for one that the newest recorded step has brought along.
        """
        record, arrays = encode_step(replace(bundle, origin=folder_origin(self._folder)))
        temporary = self._folder / f".{name}"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            make_folder(temporary)
            with open(temporary / RECORD_FILE, "wb", opener=open_for_group) as file:
                file.write(record)
            write_arrays(temporary / ARRAYS_FILE, arrays, {"format": FORMAT})
        except BaseException:  # a full disk needs the room for checkpoints
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        # The folder gets its name when it is complete, so that a reader never sees half a step.
        num_bytes = _folder_bytes(temporary)
        target = self._folder / name
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        # A step that a resumed run makes again replaces its earlier record.
        steps = [entry for entry in self.index.steps if entry.name != name]
        # JSON has no infinity.
        badness = min(badness, sys.float_info.max)
        entry = IndexEntry(name, bundle.step, list(bundle.conditions), badness, num_bytes)
        position = len(steps)
        while not is_newest and position and steps[position - 1].step > entry.step:
            position -= 1
        self.index = RecordedIndex([*steps[:position], entry, *steps[position:]])
        num_removed = self._make_room()
        self.index.write(self.run_folder)
        return num_removed

    def add_weights(
        self,
        version: PolicyVersion,
        weights: dict[str, NDArray[np.float32]],
        digests: dict[str, str],
    ) -> int:
        """Write the weights of a version; returns how many steps and versions were removed for it.

        `digests`: their checksums when they were used; empty = not known.
        """
        checksums = digests or {name: array_digest(array) for name, array in weights.items()}
        write_arrays(self._file(version), weights, checksums)
        num_removed = self._make_room()
        if num_removed:
            self.index.write(self.run_folder)
        return num_removed

    @property
    def num_bytes(self) -> int:
        weights = sum(self._file(version).stat().st_size for version in self._kept_versions())
        return weights + sum(entry.num_bytes for entry in self.index.steps)

    def _make_room(self) -> int:
        """Remove the least valuable until the rest fits; returns how many steps and versions."""
        num_removed = 0
        self._remove_old_weights()
        while self.num_bytes > self.max_bytes:
            self._remove_least_valuable()
            self._remove_old_weights()
            num_removed += 1
        return num_removed

    def _remove_old_weights(self) -> None:
        """Remove weights that neither a recorded step nor one in memory needs."""
        num_ahead = 1 + self.num_older_versions + self.ring_length
        for version in self._kept_versions()[:-num_ahead]:
            if not self._is_needed(version):
                self._file(version).unlink()

    def _remove_least_valuable(self) -> None:
        entry = self.index.least_valuable()
        versions = self._kept_versions()
        unneeded = [version for version in versions if not self._is_needed(version)]
        if unneeded and (entry is None or entry.badness > 0.0):
            self._file(unneeded[0]).unlink()
        elif entry is None and versions:
            # The newest step alone is too much: it loses its oldest weights first.
            self._file(versions[0]).unlink()
        else:
            entry = entry or self.index.steps[-1]
            shutil.rmtree(self._folder / entry.name)
            self.index.steps.remove(entry)

    def _is_needed(self, version: PolicyVersion) -> bool:
        """Whether a recorded step needs the weights."""
        return any(
            0 <= entry.step - 1 - version.step <= self.num_older_versions
            for entry in self.index.steps
        )

    def _entry_of_folder(self, name: str) -> IndexEntry:
        """The entry of a step that the index does not list; its conditions are in its record. An
        update that made no step is as bad as can be.
        """
        _, step, *made_none = name.split("-")
        badness = sys.float_info.max if made_none else 0.0
        return IndexEntry(name, int(step), [], badness, _folder_bytes(self._folder / name))

    def _kept_versions(self) -> list[PolicyVersion]:
        """Oldest first."""
        files = self._weights.glob("*.safetensors")
        return sorted(PolicyVersion.parse(path.stem) for path in files)

    def _file(self, version: PolicyVersion) -> Path:
        return self._weights / f"{version}.safetensors"


def _folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())
