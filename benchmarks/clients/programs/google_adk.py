import asyncio
import json
import os
import sys

from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner

row = json.load(sys.stdin)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


# LiteLLM reads OPENAI_BASE_URL and OPENAI_API_KEY.
model = LiteLlm(model="openai/" + os.environ["ROLLCAST_MODEL"])
agent = LlmAgent(name="weather", model=model, instruction="You are helpful.", tools=[get_weather])
events = asyncio.run(InMemoryRunner(agent=agent).run_debug(row["prompt"], quiet=True))
print(events[-1].content.parts[0].text)
