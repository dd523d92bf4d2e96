"""Sentences about what a setting names and this machine lacks."""

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from rollcast.config.errors import UserError
from rollcast.config.function_loading import check_file


def missing_function(field: str, source: str) -> Iterator[str]:
    try:
        check_file(source, field)
    except UserError as error:
        yield str(error)


def missing_program(field: str, program: str) -> Iterator[str]:
    if shutil.which(program) is None:
        yield f"{field} = {program}: there is no such program; give its path, or install it"


def missing_package(field: str, user: str, package: str) -> Iterator[str]:
    if find_spec(package) is None:
        yield (
            f"{field}: {user} needs the package {package}, which is not installed; pip install "
            "'rollcast[tools]'"
        )


def is_readable(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return bool(stream.read(1))
    except OSError:
        return False
