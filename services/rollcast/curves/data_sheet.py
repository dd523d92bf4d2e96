"""The sheet of data in memory: a frame, a mapping of columns, or two arrays."""

from collections.abc import Mapping
from typing import Any

from rollcast.curves.sheet import Sheet

ARRAYS = "arrays"
"""Format of two arrays: they have no column names that give the unit."""


def make_data_sheet(data: Any) -> Sheet:
    """The sheet of a frame, a mapping of columns, or two arrays. Raises ValueError."""
    if hasattr(data, "to_dict") and hasattr(data, "columns"):
        return _make_sheet("DataFrame", {str(name): list(data[name]) for name in data.columns})
    if isinstance(data, Mapping):
        return _make_sheet(
            "mapping of columns",
            {str(name): _column(name, values) for name, values in data.items()},
        )
    # Kinds of a tuple's elements that a sentence names
    longest_list = 3
    try:
        x, y = data
        columns = {
            "compute": [float(value) for value in x],
            "pass_rate": [float(value) for value in y],
        }
    except (TypeError, ValueError):
        kinds = f"a {type(data).__name__} is"
        if isinstance(data, tuple):
            kinds = f"{', '.join(type(element).__name__ for element in data[:longest_list])} are"
        raise ValueError(
            f"data: {kinds} not a curve; give a path, a DataFrame, a mapping of columns, or two "
            "arrays of numbers"
        ) from None
    return _make_sheet(ARRAYS, columns)


def _column(name: object, values: Any) -> list[Any]:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise ValueError(
            f"data: column {name} is a {type(values).__name__}; give a list of one value for each "
            "evaluation"
        )
    try:
        return list(values)
    except TypeError:  # an array without dimensions
        raise ValueError(
            f"data: column {name} is one value; give a list of one for each evaluation"
        ) from None


def _make_sheet(format: str, columns: dict[str, list[Any]]) -> Sheet:
    lengths = {len(values) for values in columns.values()}
    if len(lengths) != 1:
        raise ValueError(
            f"data: columns of {', '.join(map(str, sorted(lengths)))} values; give one length"
        )
    return Sheet.from_chunks(format, columns, [(lengths.pop(), columns)])
