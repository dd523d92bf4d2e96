"""The recorded steps of a run on its disk, within record.max_bytes. One thread."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rollcast.config.access_modes import open_for_group
from rollcast.recorded.array_file import write_arrays
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
        there = {path.name for path in self._folder.iterdir() if _STEP_NAME.fullmatch(path.name)}
        # Of a trainer that was killed before it wrote the list, or if that cannot be read
        unlisted = [self._entry_of_folder(name) for name in there - listed.keys()]
        unlisted.sort(key=lambda entry: entry.step)
        kept = [entry for name, entry in listed.items() if name in there]
        self.index = RecordedIndex([*unlisted, *kept])

    def add_step(self, bundle: StepBundle, name: str, badness: float) -> int:
        """Write a step and remove others to make room; returns how many were removed."""
        record, arrays = encode_step(bundle)
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
        num_bytes = sum(path.stat().st_size for path in temporary.iterdir())
        target = self._folder / name
        if target.exists():
            shutil.rmtree(target)
        temporary.replace(target)
        versions = self._needed_versions(bundle.version.step)
        entry = IndexEntry(name, bundle.step, list(bundle.conditions), badness, num_bytes, versions)
        # A step that a resumed run makes again replaces its earlier record.
        others = [item for item in self.index.steps if item.name != name]
        self.index = RecordedIndex([*others, entry])
        num_removed = self._remove_surplus()
        self.index.write(self.run_folder)
        return num_removed

    def has_weights(self, version: PolicyVersion) -> bool:
        return self._file(str(version)).exists()

    def add_weights(
        self,
        version: PolicyVersion,
        weights: dict[str, NDArray[np.float32]],
        digests: dict[str, str],
    ) -> int:
        """Write the weights of a version; returns how many steps were removed to make room.

        `digests`: their checksums when they were used; empty = not known.
        """
        known = digests or {name: array_digest(array) for name, array in weights.items()}
        write_arrays(self._file(str(version)), weights, known)
        num_removed = self._remove_surplus()
        if num_removed:
            self.index.write(self.run_folder)
        return num_removed

    @property
    def num_bytes(self) -> int:
        weights = sum(path.stat().st_size for path in self._weights.iterdir())
        return weights + sum(entry.num_bytes for entry in self.index.steps)

    def _remove_surplus(self) -> int:
        """Remove weights that no step needs, and steps until the rest fits; returns how many."""
        self._remove_unneeded_weights()
        num_removed = 0
        # Each removal may free weights that no other step needs.
        while self.num_bytes > self.max_bytes and (entry := self.index.least_valuable()):
            shutil.rmtree(self._folder / entry.name)
            self.index = self.index.without(entry)
            self._remove_unneeded_weights()
            num_removed += 1
        # The newest step alone is too much: it loses its oldest weights.
        for version in self._kept_versions():
            if self.num_bytes <= self.max_bytes:
                break
            self._file(version).unlink()
        if self.num_bytes > self.max_bytes and self.index.steps:
            shutil.rmtree(self._folder / self.index.steps[-1].name)
            self.index = RecordedIndex()
            num_removed += 1
        return num_removed

    def _remove_unneeded_weights(self) -> None:
        needed = {version for entry in self.index.steps for version in entry.versions}
        for version in self._kept_versions()[: -(1 + self.num_older_versions + self.ring_length)]:
            if version not in needed:
                self._file(version).unlink()

    def _entry_of_folder(self, name: str) -> IndexEntry:
        """The entry of a step that the index does not list; its conditions are in its record."""
        step = int(name.split("-")[1])
        num_bytes = sum(path.stat().st_size for path in (self._folder / name).iterdir())
        return IndexEntry(name, step, [], 0.0, num_bytes, self._needed_versions(step - 1))

    def _needed_versions(self, step: int) -> list[str]:
        """Kept versions that a step from the weights of `step` on needs."""
        return [
            name
            for name in self._kept_versions()
            if 0 <= step - PolicyVersion.parse(name).step <= self.num_older_versions
        ]

    def _kept_versions(self) -> list[str]:
        """Oldest first."""
        names = [path.stem for path in self._weights.glob("*.safetensors")]
        return sorted(names, key=PolicyVersion.parse)

    def _file(self, version: str) -> Path:
        return self._weights / f"{version}.safetensors"
