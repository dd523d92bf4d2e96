"""Settings of a part of a recipe that is a function of the user's own."""

from typing import Annotated, Literal

from pydantic import Field

from rollcast.config.base import CUSTOM_FUNCTION, SHA256, Settings


class CustomFunction(Settings):
    """A function of your own. docs/recipes.md describes the record that it receives, and who calls
    it how often.
    """

    kind: Literal["python"] = "python"
    """A function of your own."""
    function: Annotated[str, Field(pattern=CUSTOM_FUNCTION)]
    """`./mine.py:f`, a file and a function in it, looked up in the folder in which the command was
    started; `package.module:f`; or the name of an entry point in the group `rollcast.parts`.
    `rollcast up` copies the file, and the modules next to it that it imports, into the run's
    folder, and uses the copy; packages next to it are not copied."""
    digest: Annotated[str, Field(pattern=SHA256)] | None = None
    """SHA-256 of the file, in hexadecimal digits; a file with another one is refused. None = any.
    Left out, `rollcast up` takes that of the file, so that the run's folder names the code that
    ran."""
