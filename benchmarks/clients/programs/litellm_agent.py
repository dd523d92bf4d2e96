import json
import os
import sys

import litellm

row = json.load(sys.stdin)
parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
tools = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
messages = [{"role": "user", "content": row["prompt"]}]
for _ in range(6):
    answer = litellm.completion(
        "openai/" + os.environ["ROLLCAST_MODEL"],
        messages,
        tools=tools,
        api_base=os.environ["OPENAI_BASE_URL"],
    )
    message = answer.choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
print(messages[-1]["content"])
