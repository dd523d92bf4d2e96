import json
import os
import sys

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

row = json.load(sys.stdin)


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


agent = create_agent(ChatOpenAI(model=os.environ["ROLLCAST_MODEL"]), tools=[get_weather])
answer = agent.invoke(
    {"messages": [{"role": "user", "content": row["prompt"]}]}, {"recursion_limit": 40}
)
print(answer["messages"][-1].content)
