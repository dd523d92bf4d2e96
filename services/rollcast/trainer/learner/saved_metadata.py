"""Reads a checkpoint's `.metadata` without running any code that it names.

torch pickles it, and a pickle can call any function of any module. Here a small machine knows the operations that
torch's own files consist of and makes the few kinds of objects that they hold. Anything else is refused.
"""

import math
import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo

_MARK = object()
_NO_OPERATION = frozenset({"PROTO", "FRAME", "STOP"})
_WITH_VALUE = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINUNICODE", "BINUNICODE"})
_NEW: dict[str, Callable[[], Any]] = {
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": lambda: _MARK,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}
_SMALL_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
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
        metadata = _Machine().run(pickled)
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
        places = {(index.fqn, index.offset): place for index, place in metadata.storage_data.items()}
        for name, tensor in metadata.state_dict_metadata.items():
            if not isinstance(tensor, dcp.TensorStorageMetadata):
                raise ValueError(f".metadata is damaged: {name[:200]} is no tensor")
            _check_tensor(name, tensor)
            _check_places([places[name, chunk.offsets] for chunk in tensor.chunks], data_files)
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f".metadata is damaged: {type(error).__name__} {str(error)[:100]}") from None


def _check_tensor(name: str, tensor: dcp.TensorStorageMetadata) -> None:
    """Raises ValueError unless its chunks fill it."""
    size = tensor.size
    inside = all(
        len(chunk.offsets) == len(chunk.sizes) == len(size)
        and all(
            0 <= at <= at + length <= whole for at, length, whole in zip(chunk.offsets, chunk.sizes, size, strict=True)
        )
        for chunk in tensor.chunks
    )
    if not inside or sum(math.prod(chunk.sizes) for chunk in tensor.chunks) != math.prod(size):
        raise ValueError(f".metadata is damaged: the parts of {name[:200]} do not make it whole")


def _check_places(places: list[_StorageInfo], data_files: Collection[str]) -> None:
    for place in places:
        if place.relative_path not in data_files:
            raise ValueError(f"{str(place.relative_path)[:200]}, which .metadata names, is not there")
        if not (isinstance(place.offset, int) and isinstance(place.length, int)) or min(place.offset, place.length) < 0:
            raise ValueError(".metadata is damaged: a tensor has no place in its file")


class _Machine:
    """The stack and the memory of one pickle."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def run(self, pickled: bytes) -> Any:
        for operation, argument, _ in pickletools.genops(pickled):
            self._do(operation.name, argument)
        (result,) = self._stack
        return result

    def _do(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _WITH_VALUE:
            stack.append(argument)
        elif name == "MEMOIZE":
            self._memory[len(self._memory)] = stack[-1]
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memory[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memory[argument])
        elif name in _NEW:
            stack.append(_NEW[name]())
        elif name in _SMALL_TUPLES:
            items = [stack.pop() for _ in range(_SMALL_TUPLES[name])]
            stack.append(tuple(reversed(items)))
        elif name == "TUPLE":
            stack.append(tuple(self._to_mark()))
        elif name not in _NO_OPERATION:
            self._make(name)

    def _make(self, name: str) -> None:
        stack = self._stack
        if name in ("APPEND", "APPENDS"):
            items = self._to_mark() if name == "APPENDS" else [stack.pop()]
            _of_type(stack[-1], list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            items = self._to_mark() if name == "SETITEMS" else [stack.pop(-2), stack.pop()]
            _of_type(stack[-1], dict).update({_key(key): value for key, value in list(pairwise(items))[::2]})
        elif name == "STACK_GLOBAL":
            kind = stack.pop()
            module = stack.pop()
            stack.append(_named(module, kind))
        elif name in ("NEWOBJ", "REDUCE"):
            arguments = stack.pop()
            made = stack.pop()
            stack.append(_made(made, arguments))
        elif name == "BUILD":
            state = stack.pop()
            _build(stack[-1], state)
        else:
            raise ValueError(f"operation {name}")

    def _to_mark(self) -> list[Any]:
        place = len(self._stack) - 1 - next(at for at, item in enumerate(reversed(self._stack)) if item is _MARK)
        items = self._stack[place + 1 :]
        del self._stack[place:]
        return items


def _of_type(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{type(value).__name__} in the place of {kind.__name__}")
    return value


def _key(key: Any) -> Any:
    """Raises ValueError for other keys, whose hashing may never end."""
    is_index = type(key) is dcp.MetadataIndex and type(key.fqn) is str and type(key.offset) in (torch.Size, type(None))
    if type(key) is not str and not is_index:
        raise ValueError(f"{type(key).__name__} as a key")
    return key


@dataclass(frozen=True, slots=True)
class _Named:
    """A class or function that the file names, before anything is made with it."""

    name: str


def _named(module: Any, name: Any) -> Any:
    if module == "torch" and isinstance(found := getattr(torch, str(name), None), torch.dtype):
        return found
    if name not in _RECORDS and name not in _CALLS:
        raise ValueError(f"it asks for {str(module)[:40]}.{str(name)[:40]}")
    return _Named(name)


def _made(named: Any, arguments: Any) -> Any:
    name = _of_type(named, _Named).name
    given = _of_type(arguments, tuple)
    if name in _CALLS:
        return _CALLS[name](*given)
    if given:
        raise ValueError(f"{name} with arguments")
    return object.__new__(_RECORDS[name])


def _build(made: Any, state: Any) -> None:
    if type(made) is dcp.TensorProperties:
        made.__setstate__(state)  # type: ignore[no-untyped-call]
    elif type(made) in _RECORDS.values():
        made.__dict__.update(_of_type(state, dict))
    else:
        raise ValueError(f"a state for {type(made).__name__}")
