import json
import os
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

row = json.load(sys.stdin)


@tool
def get_weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: The name of the city.
    """
    return f"It is sunny in {city}."


model = OpenAIServerModel(
    os.environ["ROLLCAST_MODEL"],
    api_base=os.environ["OPENAI_BASE_URL"],
    api_key=os.environ["OPENAI_API_KEY"],
)
agent_class = CodeAgent if os.environ.get("CODE") else ToolCallingAgent
print(agent_class(tools=[get_weather], model=model, max_steps=8).run(row["prompt"]))
