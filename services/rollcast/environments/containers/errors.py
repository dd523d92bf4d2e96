"""How a container fails."""


class ContainerError(Exception):
    """A container cannot be started, or is gone. The message is one sentence with the cause."""


class SpoiledError(ContainerError):
    """Programs in the container made it unusable: no failure of the machine."""
