"""TensorBoard's event files: scalars of one run, by step.

A record is its length (8 bytes), a checksum of the length, the bytes of an Event, a checksum of
these. The checksum of the length is compared with it, so that an unfinished end is noticed.
TensorFlow 2 writes a scalar as a tensor, others as a plain number.

Source: tensorboard/compat/proto/{event,summary,tensor}.proto; the record format is TensorFlow's
TFRecord.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.curves.formats.log_file import MAX_FILE_BYTES, LogFile
from rollcast.curves.formats.nested import MAX_FIELDS
from rollcast.curves.formats.wire_format import (
    WIRE_BYTES,
    WIRE_FIXED32,
    WIRE_FIXED64,
    WIRE_VARINT,
    fields,
    payloads,
    to_signed,
)
from rollcast.curves.sheet import MAX_NAME_CHARS, MAX_ROWS, Row, Sheet, refuse_above

NAME = "TensorBoard event file"
FILE_MARK = "tfevents"
HEADER = struct.Struct("<QI")
WALL_TIME = "wall_time"
_TYPE_FLOAT = 1


def recognises(log: LogFile) -> bool:
    """Whether the first record's length has the checksum that follows it.

    Of a folder: whether it holds event files.
    """
    if log.path.is_dir():
        return bool(event_files(log.path))
    if len(log.content) < HEADER.size:
        return False
    length, checksum = HEADER.unpack_from(log.content)
    # The first record holds the version of the format alone, so a long one is of another format.
    return bool(length < 1 << 20 and masked_crc32c(log.content[:8]) == checksum)


def read(log: LogFile) -> Sheet:
    """The scalars of one run.

    Raises UserError: a folder holds too many files, or they are too large.
    """
    if not log.path.is_dir():
        return Sheet.from_rows(NAME, _rows([log.content], log))
    files = event_files(log.path)
    # A folder may hold many runs; each file is read whole
    if len(files) > 200:
        raise UserError(
            f"{log.path}: holds {len(files)} event files; give the folder of one run, or one file"
        )
    num_left = MAX_FILE_BYTES
    contents = []
    for path in files:
        contents.append(LogFile(path, log.tell, max_bytes=num_left).content)
        num_left -= len(contents[-1])
    return Sheet.from_rows(NAME, _rows(contents, log))


def event_files(folder: Path) -> list[Path]:
    """The event files of one run, in the order in which they were begun."""
    return sorted(path for path in folder.iterdir() if FILE_MARK in path.name and path.is_file())


def _rows(contents: list[bytes], log: LogFile) -> Iterator[Row]:
    """Scalars of the files of one run, in the order of the files: a row for each stretch of events
    of one step.
    """
    num_events = num_bad = 0
    for content in contents:
        row: Row = {}
        view = memoryview(content)
        for start, end in _records(view):
            if end < 0:
                log.tell(
                    f"{log.path}: ends within a record, as one that is still written does; read up "
                    "to there"
                )
                break
            num_events += 1
            refuse_above(num_events, MAX_ROWS, "events")
            try:
                step, wall_seconds, scalars = _event(view[start:end])
            except (ValueError, struct.error):
                num_bad += 1
                continue
            if not scalars:
                continue
            # A tag that comes again at one step is another reading.
            if row.get("step") != step or scalars.keys() & row.keys() or len(row) > MAX_FIELDS:
                if row:
                    yield row
                row = {"step": step, WALL_TIME: wall_seconds}
            row.update(scalars)
        if row:
            yield row
    if num_bad:
        log.tell(f"{log.path}: {num_bad} events left out, malformed")


def _records(content: memoryview) -> Iterator[tuple[int, int]]:
    """The beginning and end of each record; the end is -1 if the record is unfinished."""
    record_offset = 0
    footer_bytes = 4
    while len(content) - record_offset >= HEADER.size:
        length, checksum = HEADER.unpack_from(content, record_offset)
        start = record_offset + HEADER.size
        is_whole = length <= len(content) - start - footer_bytes
        if (
            masked_crc32c(bytes(content[record_offset : record_offset + 8])) != checksum
            or not is_whole
        ):
            break
        yield start, start + length
        record_offset = start + length + footer_bytes
    if record_offset < len(content):
        yield record_offset, -1


def _event(message: memoryview) -> tuple[int, float, dict[str, float]]:
    """Step, Unix seconds, scalars by tag."""
    scalars: dict[str, float] = {}
    step = 0
    wall_seconds = 0.0
    for number, kind, payload, value in fields(message):
        if (number, kind) == (1, WIRE_FIXED64):
            (wall_seconds,) = struct.unpack("<d", payload)
        elif (number, kind) == (2, WIRE_VARINT):
            step = to_signed(value)
        elif (number, kind) == (5, WIRE_BYTES):
            for summary in payloads(payload, 1):
                if len(scalars) < MAX_FIELDS:
                    tag, scalar = _scalar(summary)
                    if scalar is not None:
                        scalars[tag] = scalar
    return step, wall_seconds, scalars


def _scalar(message: memoryview) -> tuple[str, float | None]:
    tag = ""
    scalar = None
    for number, kind, payload, _ in fields(message):
        if (number, kind) == (1, WIRE_BYTES):
            tag = bytes(payload[: 4 * MAX_NAME_CHARS]).decode(errors="replace")[:MAX_NAME_CHARS]
        elif (number, kind) == (2, WIRE_FIXED32):
            (scalar,) = struct.unpack("<f", payload)
        elif (number, kind) == (8, WIRE_BYTES):
            scalar = _read_tensor(payload)
    return tag, scalar


def _read_tensor(message: memoryview) -> float | None:
    """The one number of a tensor; None for more, or for another type than float and double."""
    data_type = 0
    raw = b""
    for number, kind, payload, value in fields(message):
        if (number, kind) == (1, WIRE_VARINT):
            data_type = value
        # Fields of a TensorProto: 4 tensor_content, 5 float_val, 6 double_val.
        elif number in (4, 5, 6) and kind != WIRE_VARINT:
            raw = bytes(payload)
    if (data_type, len(raw)) == (_TYPE_FLOAT, 4):
        return float(struct.unpack("<f", raw)[0])
    # These two are values of a tensor's DataType
    if (data_type, len(raw)) == (2, 8):
        return float(struct.unpack("<d", raw)[0])
    return None


_TABLE = [0] * 256
"""CRC-32C of each byte."""
for _byte in range(256):
    _crc = _byte
    for _ in range(8):
        _crc = (_crc >> 1) ^ (0x82F63B78 if _crc & 1 else 0)
    _TABLE[_byte] = _crc


def masked_crc32c(data: bytes) -> int:
    """The checksum of the record format: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
