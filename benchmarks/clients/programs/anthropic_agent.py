import json
import os
import sys

from anthropic import Anthropic

row = json.load(sys.stdin)
schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
messages = [{"role": "user", "content": row["prompt"]}]
with Anthropic() as client:
    for _ in range(6):
        answer = client.messages.create(
            model=os.environ["ANTHROPIC_MODEL"],
            max_tokens=200,
            messages=messages,
            tools=[{"name": "get_weather", "input_schema": schema}],
        )
        messages.append({"role": "assistant", "content": answer.content})
        calls = [block for block in answer.content if block.type == "tool_use"]
        if not calls:
            break
        results = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls
        ]
        messages.append({"role": "user", "content": results})
print(answer.content)
