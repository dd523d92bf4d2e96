"""The few calls of a sweep to the cluster's API server and to forecasters, each with a deadline."""

import os
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from rollcast.config.connections import TLS
from rollcast.config.errors import PassingError, UserError, may_pass
from rollcast.connections import http

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ClusterApi:
    def __init__(self, url: str, account: Path = ACCOUNT) -> None:
        """`account`: folder of the service account's token, certificate and namespace."""
        authority = account / "ca.crt"
        self._url = url
        self._account = account
        self._client = http.client(
            timeout_seconds=10.0,
            tls=TLS(certificate_authority=authority) if authority.exists() else None,
        )
        token = os.environ.get("ROLLCAST_HTTP_TOKEN")
        self._forecasters = http.client(token=SecretStr(token) if token else None)

    @classmethod
    def connect(cls) -> "ClusterApi":
        """Raises UserError outside a pod."""
        host = os.environ.get("KUBERNETES_SERVICE_HOST")
        if host is None or not (ACCOUNT / "token").exists():
            raise UserError(
                "--cluster: this process is not in a pod with a service account; leave it out, or "
                "apply the Job that `rollcast sweep values` writes"
            )
        port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        return cls(f"https://{f'[{host}]' if ':' in host else host}:{port}")

    def __enter__(self) -> "ClusterApi":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._forecasters.close()

    @property
    def namespace(self) -> str:
        return (self._account / "namespace").read_text().strip()

    def get(self, path: str) -> dict[str, Any]:
        return self._call("GET", path, None)

    def patch(self, path: str, change: dict[str, Any]) -> None:
        self._call("PATCH", path, change)

    def ask_forecaster(self, url: str) -> dict[str, Any] | None:
        """None if it does not answer, or has nothing to say yet.

        Raises UserError if it refuses the token: no run would ever make a reading.
        """
        try:
            response = self._forecasters.get(url)
        except httpx.HTTPError:
            return None
        if response.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise UserError(
                f"GET {url}: is refused ({response.status_code}); give the Job the "
                "ROLLCAST_HTTP_TOKEN of the releases"
            )
        try:
            return dict(response.json()) if response.status_code == httpx.codes.OK else None
        except ValueError:
            return None

    def _call(self, method: str, path: str, change: dict[str, Any] | None) -> dict[str, Any]:
        """Raises UserError if the call is refused, PassingError if the server does not answer."""
        # The kubelet replaces the token about once an hour
        token = (self._account / "token").read_text().strip()
        headers = {"authorization": f"Bearer {token}"}
        if change is not None:
            headers["content-type"] = "application/merge-patch+json"
        try:
            response = self._client.request(method, self._url + path, json=change, headers=headers)
            return dict(response.raise_for_status().json())
        except (httpx.HTTPError, ValueError) as error:
            kind = PassingError if may_pass(error) or _is_transport(error) else UserError
            raise kind(
                f"{method} {path}: {' '.join(str(error).split())[:300]}; install every arm with "
                "its values file, in the sweep's namespace"
            ) from error


def _is_transport(error: Exception) -> bool:
    return isinstance(error, httpx.TransportError)
