import json
import os
import sys

from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel


class Weather(BaseModel):
    city: str
    degrees: int


row = json.load(sys.stdin)
model = OpenAIChatModel(os.environ["ROLLCAST_MODEL"])
agent = Agent(model, output_type=Weather if os.environ.get("OUTPUT_TYPE") else str, retries=5)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


print(agent.run_sync(row["prompt"]).output)
