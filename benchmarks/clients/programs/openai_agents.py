import json
import os
import sys

from agents import (
    Agent,
    ModelSettings,
    Runner,
    function_tool,
    set_default_openai_api,
    set_tracing_disabled,
)

row = json.load(sys.stdin)
set_default_openai_api(os.environ.get("AGENTS_API", "chat_completions"))
set_tracing_disabled(True)


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


settings = (
    ModelSettings(parallel_tool_calls=False) if os.environ.get("ONE_CALL") else ModelSettings()
)
agent = Agent(
    name="weather",
    instructions="You are helpful.",
    model=os.environ["ROLLCAST_MODEL"],
    tools=[get_weather],
    model_settings=settings,
)
print(Runner.run_sync(agent, row["prompt"], max_turns=8).final_output)
