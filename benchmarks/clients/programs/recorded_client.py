"""Starts the program that is given as arguments behind a proxy of its session, which writes every
request of a session to a file in $RECORD_FOLDER: the oldest file is the first episode.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

URL_VARIABLES = ("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "ROLLCAST_REWARD_URL")
HOP_HEADERS = {"connection", "host", "transfer-encoding", "keep-alive", "content-length"}
# Others change nothing at the endpoint.
RECORDED_HEADERS = ("x-stainless-retry-count", "x-rollcast-untrained", "anthropic-version")

session_url = urlsplit(os.environ["OPENAI_BASE_URL"])
session_path = session_url.path.removesuffix("/v1")
file = Path(os.environ["RECORD_FOLDER"]) / f"{time.time_ns()}.jsonl"
lock = threading.Lock()
num_requests = 0


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self):
        global num_requests
        with lock:
            number = num_requests
            num_requests += 1
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        connection = http.client.HTTPConnection(session_url.netloc, timeout=600)
        headers = {
            name: value for name, value in self.headers.items() if name.lower() not in HOP_HEADERS
        }
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        while chunk := answer.read1():
            self.wfile.write(chunk)
            self.wfile.flush()
        connection.close()
        self.close_connection = True
        request = {
            "number": number,
            "method": self.command,
            "path": self.path.partition("?")[0].removeprefix(session_path),
            "headers": {
                name: self.headers[name] for name in RECORDED_HEADERS if name in self.headers
            },
            "body": json.loads(body) if body else None,
            "status": answer.status,
        }
        # In the order of their ends, as the engine's turns are.
        with lock, file.open("a") as lines:
            lines.write(json.dumps(request) + "\n")

    do_GET = do_POST = do_HEAD = forward  # noqa: N815  (named by http.server)

    def log_message(self, *arguments):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
# The last request is written before the end: `server_close` waits for it.
server.daemon_threads = False
threading.Thread(target=server.serve_forever, daemon=True).start()
variables = dict(os.environ)
for name in URL_VARIABLES:
    if name in variables:
        variables[name] = variables[name].replace(
            session_url.netloc, f"127.0.0.1:{server.server_address[1]}"
        )
ended = subprocess.run(sys.argv[1:], env=variables, check=False)
server.shutdown()
server.server_close()
sys.exit(ended.returncode)
