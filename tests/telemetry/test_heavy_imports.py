"""What a service imports at its start is not looked through for garbage; what it does afterwards
is.
"""

from __future__ import annotations

import gc

import pytest

from rollcast.telemetry.heavy_imports import pause_garbage_collection


def test_garbage_is_collected_again_after_an_import_that_failed() -> None:
    with pause_garbage_collection():
        assert not gc.isenabled()
    with pytest.raises(ImportError), pause_garbage_collection():
        raise ImportError
    assert gc.isenabled()


def test_what_was_imported_is_never_looked_through_again() -> None:
    with pause_garbage_collection():
        imported = [[number] for number in range(1000)]
    made_later: list[object] = []
    known = {id(item) for item in gc.get_objects()}  # without what is frozen
    assert not known & {id(item) for item in (imported, *imported)}
    assert id(made_later) in known


def test_where_nothing_was_collected_nothing_is_afterwards() -> None:
    gc.disable()
    try:
        with pause_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
