import json
import os
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Weather(BaseModel):
    """The weather of a city."""

    city: str
    degrees: int


row = json.load(sys.stdin)
model = ChatOpenAI(model=os.environ["ROLLCAST_MODEL"])
method = os.environ.get("METHOD", "function_calling")
print(model.with_structured_output(Weather, method=method).invoke(row["prompt"]))
