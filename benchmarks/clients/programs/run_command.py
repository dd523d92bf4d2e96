"""Starts the command of a client that is a program itself, with the session's address and model in
its arguments.
"""

import json
import os
import subprocess
import sys

json.load(sys.stdin)
places = {
    "bin": os.environ["CLIENT_BIN"],
    "base_url": os.environ["OPENAI_BASE_URL"],
    "model": os.environ["ROLLCAST_MODEL"],
}
command = [argument.format(**places) for argument in json.loads(os.environ["CLIENT_COMMAND"])]
# Node.js of the same folder comes first, if there is one.
variables = os.environ | {"PATH": os.environ["CLIENT_BIN"] + ":" + os.environ["PATH"]}
sys.exit(subprocess.run(command, stdin=subprocess.DEVNULL, env=variables, check=False).returncode)
