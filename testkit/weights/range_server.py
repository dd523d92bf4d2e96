"""python -m testkit.weights.range_server FOLDER PORT: files over HTTP, in ranges, as object storage
serves them.
"""

import sys

from aiohttp import web

if __name__ == "__main__":
    application = web.Application()
    application.router.add_static("/", sys.argv[1])
    web.run_app(application, host="127.0.0.1", port=int(sys.argv[2]), print=None)
