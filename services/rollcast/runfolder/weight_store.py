"""The store of a run's weights, as trainer ranks and generators open it."""

from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.connections.object_files import ObjectFolder
from rollcast.runfolder.files import weight_store_place


def open_weight_store(
    run_folder: Path, location: str | None, *, probe: str | None = None
) -> ObjectFolder:
    """The objects of one run. `location`: weights.store.location. `probe`: name of an object that
    is written, listed and removed there.

    Raises UserError: the protocol is unknown, its library is missing, or a right is. A
    storage that does not answer raises nothing, since it may come back.
    """
    place = weight_store_place(run_folder, location)
    try:
        folder = ObjectFolder(place)
        if probe is not None:
            folder.probe(probe)
    except (OSError, NotImplementedError) as error:
        reason = error.strerror if isinstance(error, OSError) else "its protocol cannot write"
        raise UserError(
            f"weights.store.location = {place}: cannot be used ({reason or error}); give a folder "
            "or a URL such as s3://bucket/path in which the trainer may write, list and remove "
            "objects, and install the library of the URL's protocol"
        ) from error
    return folder
