"""A server that speaks S3, where s3fs and moto are installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import fsspec
import pytest

from rollcast.local.ports import free_port
from testkit.weights.trainer_end import wait_until

needs_s3 = pytest.mark.skipif(
    find_spec("s3fs") is None or find_spec("moto") is None,
    reason="s3fs and moto's server are not installed",
)


@contextmanager
def s3_server() -> Iterator[str]:
    """A bucket of a server that speaks S3."""
    port = free_port("127.0.0.1")
    credentials = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (credentials | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}).items():
            patch.setenv(name, value)
        server = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
            stderr=subprocess.DEVNULL,
        )
        try:
            # Instances know the address of an earlier server.
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            files: Any = fsspec.filesystem("s3", use_listings_cache=False)

            def is_there() -> bool:
                try:
                    files.mkdir("bucket")
                except OSError:
                    return False
                return True

            wait_until(is_there)
            yield "s3://bucket"
        finally:
            server.kill()
            server.wait()
