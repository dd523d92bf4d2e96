"""The services that grade for one run, by their names in the run file."""

import json
from collections.abc import Callable, Iterable
from functools import partial

from rollcast.config.verifiers import HttpVerifier, JudgeVerifier, VerifierSettings
from rollcast.tasks.remote.asking import NoAnswer, Outcome
from rollcast.tasks.remote.llm_judge import LlmJudge
from rollcast.tasks.remote.reward_service import RewardService
from rollcast.tasks.verifiers import Grade

Count = Callable[[str, Outcome], None]
"""Called with every request: the verifier's name and the outcome."""


class Services:
    """Made and used in one event loop."""

    def __init__(self, declared: Iterable[VerifierSettings], count: Count) -> None:
        self._services: dict[str, RewardService | LlmJudge] = {}
        for settings in declared:
            count_outcome = partial(count, settings.name)
            if isinstance(settings, HttpVerifier):
                self._services[settings.name] = RewardService(settings, count_outcome)
            elif isinstance(settings, JudgeVerifier):
                self._services[settings.name] = LlmJudge(settings, count_outcome)

    async def grade(self, verifier: str, completion: str, reference: str) -> Grade:
        """The service's verdict, or a grade with the reason why there is none."""
        try:
            return await self._services[verifier].grade(completion, json.loads(reference))
        except NoAnswer as error:
            return Grade(
                0.0, "timeout" if error.outcome == "timeout" else "error", failure=str(error)
            )

    async def close(self) -> None:
        for service in self._services.values():
            await service.close()
