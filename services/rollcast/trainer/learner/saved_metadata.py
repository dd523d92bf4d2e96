"""Reads a checkpoint's `.metadata` without running any code that it names.

torch pickles it, and a pickle can call any function of any module. Here a small machine knows the
operations that torch's own files consist of and makes the few kinds of objects that they hold.
Anything else is refused. `find_class` of `pickle.Unpickler` would not be enough: lab/notes.md.
"""

import math
import pickle
from collections.abc import Callable, Collection
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo

_OPERATION_NAMES = (
    "PROTO FRAME STOP NONE NEWTRUE NEWFALSE MARK BININT BININT1 BININT2 LONG1 SHORT_BINUNICODE "
    "BINUNICODE EMPTY_TUPLE EMPTY_LIST EMPTY_DICT TUPLE TUPLE1 TUPLE2 TUPLE3 MEMOIZE BINPUT "
    "LONG_BINPUT BINGET LONG_BINGET STACK_GLOBAL"
)
_OPERATIONS = [getattr(pickle, name) for name in _OPERATION_NAMES.split()]
"""Operations of torch's own files that call no function; `_Machine` has its own of the others."""
_RECORDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        dcp.Metadata,
        dcp.MetadataIndex,
        dcp.StorageMeta,
        dcp.TensorProperties,
        dcp.TensorStorageMetadata,
        dcp.BytesStorageMetadata,
        dcp.ChunkStorageMetadata,
        _StorageInfo,
    )
}
_CALLS: dict[str, Callable[..., Any]] = {
    "Size": torch.Size,
    "_MEM_FORMAT_ENCODING": dcp._MEM_FORMAT_ENCODING,
    "_get_layout": lambda _: torch.strided,
    "PosixPath": lambda *_: None,  # the folder it was written in is not needed
    "PurePosixPath": lambda *_: None,
}


class PlainReader(FileSystemReader):
    """Reads `.metadata` by the rules of this module."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> dcp.Metadata:
        """Raises ValueError if it is damaged."""
        with self.fs.create_stream(self._get_metadata_path(kwargs.get("rank")), "rb") as file:
            metadata = plain_metadata(file.read())
        metadata.storage_meta = dcp.StorageMeta(load_id=self.load_id)
        return metadata


def plain_metadata(pickled: bytes) -> dcp.Metadata:
    """The object that torch pickled. Raises ValueError for anything that torch does not write."""
    try:
        metadata = _Machine(BytesIO(pickled)).load()
    except Exception as error:  # bytes may make it stumble anywhere
        raise ValueError(f".metadata is damaged: {' '.join(str(error).split())[:100]}") from None
    if not isinstance(metadata, dcp.Metadata):
        raise ValueError(".metadata is damaged: it holds no metadata of a checkpoint")
    metadata.planner_data = None
    return metadata


def check_metadata(metadata: dcp.Metadata, data_files: Collection[str]) -> None:
    """Raises ValueError unless it holds only tensors, with every part in one of `data_files`.

    Entries of another kind are refused because torch would unpickle them.
    """
    try:
        file_ranges = {
            (index.fqn, index.offset): file_range
            for index, file_range in metadata.storage_data.items()
        }
        for name, tensor in metadata.state_dict_metadata.items():
            if not isinstance(tensor, dcp.TensorStorageMetadata):
                raise ValueError(f".metadata is damaged: {name[:200]} is not a tensor")
            _check_tensor(name, tensor)
            _check_file_ranges(
                [file_ranges[name, chunk.offsets] for chunk in tensor.chunks], data_files
            )
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(
            f".metadata is damaged: {type(error).__name__} {str(error)[:100]}"
        ) from None


def _check_tensor(name: str, tensor: dcp.TensorStorageMetadata) -> None:
    """Raises ValueError unless its chunks fill it."""
    size = tensor.size
    inside = all(
        len(chunk.offsets) == len(chunk.sizes) == len(size)
        and all(
            0 <= at <= at + length <= extent
            for at, length, extent in zip(chunk.offsets, chunk.sizes, size, strict=True)
        )
        for chunk in tensor.chunks
    )
    if not inside or sum(math.prod(chunk.sizes) for chunk in tensor.chunks) != math.prod(size):
        raise ValueError(f".metadata is damaged: the parts of {name[:200]} do not make it whole")


def _check_file_ranges(file_ranges: list[_StorageInfo], data_files: Collection[str]) -> None:
    for file_range in file_ranges:
        if file_range.relative_path not in data_files:
            raise ValueError(
                f"{str(file_range.relative_path)[:200]}, which .metadata names, does not exist"
            )
        if (
            not (isinstance(file_range.offset, int) and isinstance(file_range.length, int))
            or min(file_range.offset, file_range.length) < 0
        ):
            raise ValueError(".metadata is damaged: a tensor has no place in its file")


@dataclass(frozen=True, slots=True)
class _Named:
    """A class or function that the file names, before anything is made with it."""

    name: str


class _Machine(pickle._Unpickler):
    """Python's own reader of pickles, but for the operations that could run code of the file's
    choice.
    """

    stack: list[Any]
    pop_mark: Callable[[], list[Any]]

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        if name not in _RECORDS and name not in _CALLS:
            raise ValueError(f"it asks for {module[:40]}.{name[:40]}")
        return _Named(name)

    def _append(self) -> None:
        _require_type(self.stack[-2], list).append(self.stack.pop())

    def _appends(self) -> None:
        items = self.pop_mark()
        _require_type(self.stack[-1], list).extend(items)

    def _setitem(self) -> None:
        value = self.stack.pop()
        key = self.stack.pop()
        _require_type(self.stack[-1], dict)[_key(key)] = value

    def _setitems(self) -> None:
        items = self.pop_mark()
        _require_type(self.stack[-1], dict).update(
            {_key(key): value for key, value in list(pairwise(items))[::2]}
        )

    def _make(self) -> None:
        arguments = _require_type(self.stack.pop(), tuple)
        name = _require_type(self.stack.pop(), _Named).name
        if name in _CALLS:
            self.stack.append(_CALLS[name](*arguments))
        elif arguments:
            raise ValueError(f"{name} with arguments")
        else:
            # No constructor runs; `_build` fills in the fields.
            self.stack.append(object.__new__(_RECORDS[name]))

    def _build(self) -> None:
        state = self.stack.pop()
        instance = self.stack[-1]
        if type(instance) is dcp.TensorProperties:
            instance.__setstate__(state)  # type: ignore[no-untyped-call]
        elif type(instance) in _RECORDS.values():
            instance.__dict__.update(_require_type(state, dict))
        else:
            raise ValueError(f"a state for {type(instance).__name__}")

    dispatch: ClassVar[Any] = {
        operation[0]: pickle._Unpickler.dispatch[operation[0]] for operation in _OPERATIONS
    } | {
        pickle.APPEND[0]: _append,
        pickle.APPENDS[0]: _appends,
        pickle.SETITEM[0]: _setitem,
        pickle.SETITEMS[0]: _setitems,
        pickle.NEWOBJ[0]: _make,
        pickle.REDUCE[0]: _make,
        pickle.BUILD[0]: _build,
    }


def _require_type(value: object, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{type(value).__name__} in the place of {kind.__name__}")
    return value


def _key(key: object) -> Any:
    """Raises ValueError for other keys, whose hashing may never end."""
    is_index = (
        type(key) is dcp.MetadataIndex
        and type(key.fqn) is str
        and type(key.offset) in (torch.Size, type(None))
    )
    if type(key) is not str and not is_index:
        raise ValueError(f"{type(key).__name__} as a key")
    return key
