"""The lock that the publisher's threads share, and the wake-up of its control thread."""

import threading


class Wake:
    """`changed` guards the publisher's state, the flags included."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.has_changed = False
        """Whether something happened since the control thread began its turn."""
        self.is_stopping = False

    def notify(self) -> None:
        """Wake the control thread and all callers that wait for acknowledgements."""
        with self.changed:
            self.has_changed = True
            self.changed.notify_all()
