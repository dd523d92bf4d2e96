"""openai-agents 0.24 with its defaults, for one task: it speaks OpenAI's `/v1/responses`.

A call of a tool that is not there ends it with exit code 3; run.yaml says whose mistake that is.
"""

import json
import os
import sys

from agents import Agent, ModelBehaviorError, Runner, function_tool, set_tracing_disabled

# Traces would be sent to OpenAI.
set_tracing_disabled(True)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


agent = Agent(
    name="calculator",
    instructions="Use the tools for every calculation, and answer with the number alone.",
    model=os.environ["ROLLCAST_MODEL"],
    tools=[function_tool(add), function_tool(multiply)],
)
try:
    print(Runner.run_sync(agent, json.load(sys.stdin)["prompt"], max_turns=8).final_output)
except ModelBehaviorError as error:
    # Python ends with 1 for every other error, which is none of the model's.
    print(error)
    sys.exit(3)
