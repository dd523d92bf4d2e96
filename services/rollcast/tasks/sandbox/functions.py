"""The functions of a program, called from its judge's process."""

from collections.abc import Callable
from typing import Any

from rollcast.tasks.sandbox.channel import Channel, OversizeError
from rollcast.tasks.sandbox.patience import Patiences
from rollcast.tasks.sandbox.verdict import ProgramError


class RaisedError(Exception):
    """The program's function raised. `kind`: the exception's class, as the program names it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Functions:
    """After a failure that ends the program every call fails alike: a test's own `except` cannot hide it."""

    def __init__(
        self,
        channel: Channel,
        patience: Callable[[], Patiences],
        why_it_ended: Callable[[], ProgramError],
        why_it_is_late: Callable[[Patiences], ProgramError],
    ) -> None:
        """`patience`: with a question that is asked now."""
        self._channel = channel
        self._patience = patience
        self._why_it_ended = why_it_ended
        self._why_it_is_late = why_it_is_late
        self.failure: ProgramError | None = None

    def load(self, sources: list[str]) -> None:
        """Raises RaisedError if the sources raise, and ProgramError."""
        self._ask({"script": False, "sources": sources})

    def call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The result of the program's function of that name, or of that method of a new `Solution`.

        Raises RaisedError; ProgramError if the program is finished.
        """
        return self._ask({"name": name, "arguments": arguments, "keywords": keywords})

    def _ask(self, question: Any) -> Any:
        if self.failure is None:
            try:
                return self._answer(question)
            except ProgramError as error:
                self.failure = error
        raise self.failure

    def _answer(self, question: Any) -> Any:
        patience = self._patience()
        try:
            self._channel.send(question, patience=patience)
        except TimeoutError:
            raise self._why_it_is_late(patience) from None
        except OSError:
            raise self._why_it_ended() from None
        try:
            answer = self._channel.receive(patience=patience)
        except TimeoutError:
            raise self._why_it_is_late(patience) from None
        except (EOFError, OSError):
            raise self._why_it_ended() from None
        except OversizeError:
            raise ProgramError("output") from None
        except (ValueError, RecursionError, MemoryError):
            raise ProgramError("garbled") from None
        if not isinstance(answer, dict) or len(answer.keys() & {"value", "raised"}) != 1:
            raise ProgramError("garbled")
        if "raised" in answer:
            raise RaisedError(str(answer["raised"]), str(answer.get("message", "")))
        return answer["value"]
