"""Which port each service of a run listens on: a small file for each under `ports/` in the run
folder.
"""

from pathlib import Path

from rollcast.config.access_modes import FOLDER_MODE
from rollcast.config.errors import refused_by_the_world


def ports_folder(folder: Path) -> Path:
    """The folder in which the services of a run write their ports."""
    return folder / "ports"


def port_file(folder: Path, service: str) -> Path:
    """The file in which one service writes its port."""
    return ports_folder(folder) / service


def publish_port(folder: Path, service: str, port: int) -> None:
    """Write the port a service listens on to the run folder, where local mode and the forecaster
    find it. Raises UserError if that fails.
    """
    file = port_file(folder, service)
    temporary = file.with_name(f".{service}.tmp")
    try:
        # One by one, because parents would be made with another mode; the first service of a
        # cluster makes the run's folder
        for path in (folder, file.parent):
            path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        temporary.write_text(f"{port}\n")
        temporary.replace(file)
    except OSError as error:
        raise refused_by_the_world(
            error,
            f"folder: {file} cannot be written ({error.strerror}); free space or fix the "
            "permissions, then start again",
        ) from error


def read_port(file: Path) -> int:
    """Raises OSError if there is no such file (yet), ValueError if it does not contain a number."""
    with file.open() as text:
        # Characters read of a file; a port has at most five
        return int(text.read(20))
