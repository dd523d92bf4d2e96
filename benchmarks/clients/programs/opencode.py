import json
import os
import subprocess
import sys
from pathlib import Path

row = json.load(sys.stdin)
model = os.environ["ROLLCAST_MODEL"]
options = {"baseURL": os.environ["OPENAI_BASE_URL"], "apiKey": os.environ["OPENAI_API_KEY"]}
models = {model: {}, f"{model}-untrained": {}}
config = {
    "provider": {
        "rollcast": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": models}
    },
    "small_model": f"rollcast/{model}-untrained",
    "permission": {"bash": "allow"},
    "autoupdate": False,
    "share": "disabled",
}
Path("opencode.json").write_text(json.dumps(config))
command = [
    os.environ["CLIENT_BIN"] + "/opencode",
    "run",
    "--model",
    f"rollcast/{model}",
    row["prompt"],
]
# Node.js of the same folder comes first, if there is one.
variables = os.environ | {"PATH": os.environ["CLIENT_BIN"] + ":" + os.environ["PATH"]}
sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL, env=variables, check=False).returncode)
