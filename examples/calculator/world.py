"""A world of one's own: a calculator that the model has to call several times.

The convention is TRL's: `reset` begins an episode with the fields of a row, public methods are
tools, and `get_reward` says what the episode was worth. Nothing is imported from Rollcast.
"""


class Calculator:
    def reset(self, answer: int, **row: object) -> None:
        """Begin an episode with the row of its prompt."""
        self.answer = answer
        self.result: int | None = None

    def add(self, a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        self.result = a + b
        return self.result

    def subtract(self, a: int, b: int) -> int:
        """Subtract the second number from the first.

        Args:
            a: The first number.
            b: The second number.
        """
        self.result = a - b
        return self.result

    def multiply(self, a: int, b: int) -> int:
        """Multiply two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        self.result = a * b
        return self.result

    def get_reward(self) -> float:
        """1 if the last result is the answer."""
        return float(self.result == self.answer)
