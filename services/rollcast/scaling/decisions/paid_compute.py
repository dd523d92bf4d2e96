"""The compute that is paid for, and the compute that the law is fitted on."""

from typing import Protocol

from rollcast.scaling.law.curve import Array


class Axis(Protocol):
    """A rising map between the compute that is paid for and what the law is fitted on; (m,) ->
    (m,).
    """

    def to_fitted(self, device_hours: Array) -> Array: ...

    def to_device_hours(self, fitted: Array) -> Array: ...


class SameAxis:
    """The law is fitted on the compute that is paid for."""

    def to_fitted(self, device_hours: Array) -> Array:
        return device_hours

    def to_device_hours(self, fitted: Array) -> Array:
        return fitted
