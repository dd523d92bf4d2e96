"""Refusals: the endpoint's answers in place of a completion."""

from dataclasses import dataclass


@dataclass(eq=False)
class RefusedRequestError(Exception):
    """A request that is not answered with a completion.

    Client libraries repeat none of these statuses.
    """

    sentence: str
    status: int = 400
    code: str = "invalid_request"
    """The `code` of OpenAI's error form, for programs."""

    def __str__(self) -> str:
        return self.sentence


def budget_over(sentence: str) -> RefusedRequestError:
    """A request after the end of its episode's budget.

    At this code of OpenAI's many harnesses end in order.
    """
    return RefusedRequestError(sentence, code="context_length_exceeded")
