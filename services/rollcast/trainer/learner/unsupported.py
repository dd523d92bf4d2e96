"""Features of a model that this trainer does not support."""


class Unsupported(ValueError):  # noqa: N818  (an answer, which the caller makes a sentence of)
    """A feature of a model that this trainer does not support, as the rest of a sentence about it,
    with the remedy.
    """

    def __init__(self, reason: str, remedy: str = "choose another model") -> None:
        super().__init__(f"{reason}; {remedy}")
