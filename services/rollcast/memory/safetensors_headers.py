"""Names and shapes of a model's weights, from the headers of its safetensors files. No tensor is
read.

A file begins with the size of its header (8 bytes, little-endian) and the header: JSON, name ->
dtype, shape, offsets. A model is one file, or an index that names several.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from rollcast.memory.architecture import Shape
from rollcast.memory.hub import beginning, hub_file, hub_limit

WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_HEADER_BYTES = 32 << 20
"""Largest header that is read. The format allows 100 MB; a file of 50,000 tensors needs 7 MB."""
_ONE_EXPERT = re.compile(r"(.+\.)(?:mlp|block_sparse_moe)\.experts\.\d+\.(\w+)\.weight")
_GATES = ("gate_proj", "w1")
_TEXT_MODEL = re.compile(
    r"(?:model\.)?language_model\.(?:model\.)?(?=layers|embed_tokens|norm|lm_head)"
)
"""Beginning of the names of the text model's weights in a model of several parts."""
_BUFFER = "rotary_emb.inv_freq"
"""Old files hold it; it is not a weight."""
_UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, AttributeError),
    *(OverflowError, RecursionError),
)
"""Errors while a file is read that is missing, damaged, or JSON of another form than its name
promises."""

ReadFile = Callable[[str], Generator[bytes]]
"""The content of one file of the model, piece by piece."""


def stored_here(folder: Path) -> dict[str, Shape] | None:
    """Weights by the headers of the files in `folder`. None if no file is there or readable."""
    try:
        return _read_stored_shapes(
            partial(_pieces, folder), is_split=not (folder / WHOLE).is_file()
        )
    except _UNREADABLE:
        return None


def stored_on_hub(model: str) -> dict[str, Shape] | None:
    """Weights by the headers of the hub's files, of which only those are fetched.

    None if they cannot be read.
    """
    import httpx

    read_hub_file = partial(hub_file, model, deadline=hub_limit())
    for is_split in (False, True):
        try:
            return _read_stored_shapes(read_hub_file, is_split=is_split)
        except httpx.HTTPStatusError as error:
            if error.response.status_code != httpx.codes.NOT_FOUND:
                return None
        except (*_UNREADABLE, httpx.HTTPError, httpx.InvalidURL):
            return None
    return None


def _pieces(folder: Path, name: str) -> Generator[bytes]:
    with (folder / name).open("rb") as stream:
        # Bytes of one read
        while piece := stream.read(1 << 16):
            yield piece


def _read_stored_shapes(read_file: ReadFile, *, is_split: bool) -> dict[str, Shape]:
    """Raises one of _UNREADABLE, or httpx.HTTPError."""
    names = _named_by_index(read_file) if is_split else [WHOLE]
    shapes: dict[str, Shape] = {}
    for name in names:
        with closing(read_file(name)) as pieces:
            shapes |= _header(pieces)
    return as_transformers_keeps_them(shapes)


def _named_by_index(read_file: ReadFile) -> list[str]:
    with closing(read_file(INDEX)) as pieces:
        index = json.loads(beginning(pieces, MAX_HEADER_BYTES))
    names = sorted(set(index["weight_map"].values()))
    # A hostile index may name any number
    if len(names) > 1_000 or not all(
        isinstance(name, str) and Path(name).name == name for name in names
    ):
        raise ValueError(f"{INDEX} names no files of one folder")
    return names


def _header(pieces: Iterable[bytes]) -> dict[str, Shape]:
    size_bytes = 8
    start = beginning(pieces, size_bytes)
    size = int.from_bytes(start[:size_bytes], "little")
    if not 0 < size <= MAX_HEADER_BYTES:
        raise ValueError(f"a header of {size} bytes")
    start += beginning(pieces, size_bytes + size - len(start))
    header = json.loads(start[size_bytes : size_bytes + size])
    return {
        name: tuple(map(int, tensor_header["shape"]))
        for name, tensor_header in header.items()
        if name != "__metadata__"
    }


def _is_text(name: str) -> bool:
    return bool(_TEXT_MODEL.match(name)) or name.startswith("lm_head.")


def as_transformers_keeps_them(stored: Mapping[str, Shape]) -> dict[str, Shape]:
    """The text model alone, with a layer's experts stacked: `gate_up_proj` (E, 2 I, H), `down_proj`
    (E, H, I).
    """
    if any(_TEXT_MODEL.match(name) for name in stored):
        text = {
            _TEXT_MODEL.sub("model.", name): shape
            for name, shape in stored.items()
            if _is_text(name)
        }
        stored = {name.replace("model.lm_head.", "lm_head."): shape for name, shape in text.items()}
    shapes: dict[str, Shape] = {}
    gates: dict[str, list[Shape]] = defaultdict(list)
    """Shapes of the gates of a layer's experts."""
    for name, shape in stored.items():
        expert = _ONE_EXPERT.fullmatch(name)
        if expert is None:
            if not name.endswith(_BUFFER):
                shapes[name.replace(".block_sparse_moe.", ".mlp.")] = shape
        elif expert[2] in _GATES:
            gates[expert[1]].append(shape)
    for layer, of_experts in gates.items():
        width, hidden = of_experts[-1]
        shapes[f"{layer}mlp.experts.gate_up_proj"] = (len(of_experts), 2 * width, hidden)
        shapes[f"{layer}mlp.experts.down_proj"] = (len(of_experts), hidden, width)
    return shapes
