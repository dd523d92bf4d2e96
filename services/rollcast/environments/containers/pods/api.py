"""The calls of pods to the cluster's API server: each has a deadline, and fails in one sentence.

Environments call Kubernetes through this module alone.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from kubernetes.aio import client
from kubernetes.aio import config as kubernetes_config
from kubernetes.aio.stream import WsApiClient
from kubernetes.aio.watch import Watch

from rollcast.environments.containers.pods.manifest import EPISODE_CONTAINER

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

_FAILURES = (aiohttp.ClientError, TimeoutError, ValueError, OSError, RuntimeError)
"""RuntimeError: a call while the client is closed, at the end of a generator."""


class ClusterError(Exception):
    """The API server refused or did not answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        """status: of the answer; 0 = there was none."""
        super().__init__(message)
        self.status = status


class PodApi:
    """The pods of one namespace. Every method raises ClusterError."""

    def __init__(self, configuration: Any, namespace: str) -> None:
        self._namespace = namespace
        self._client = client.ApiClient(configuration)
        self._core = client.CoreV1Api(self._client)
        # An idle command would not notice that its node is gone.
        self._stream_client = WsApiClient(configuration, heartbeat=30.0)
        self._streams = client.CoreV1Api(self._stream_client)

    @classmethod
    async def connect(cls, namespace: str | None) -> "PodApi":
        """By the pod's service account, or by the file that KUBECONFIG names. namespace: None = the
        pod's own, or that of the file's context.
        """
        configuration = client.Configuration()
        try:
            if files := os.environ.get("KUBECONFIG"):
                loader = await kubernetes_config.load_kube_config(
                    files, client_configuration=configuration
                )
                namespace = namespace or loader.current_context["context"].get("namespace")
            else:
                kubernetes_config.load_incluster_config(client_configuration=configuration)
                # A proxy of the variables leads out of the cluster.
                configuration.client_session_kwargs = {"trust_env": False}
                namespace = namespace or _own_namespace()
        # A malformed file has the client raise whatever its content leads to.
        except Exception as error:
            raise ClusterError(f"there is no access to Kubernetes: {_one_line(error)}") from error
        if namespace is None:
            raise ClusterError("the context of KUBECONFIG has no namespace; set `namespace`")
        # Each command of an episode holds a connection; 0 = any number of them.
        configuration.connection_pool_maxsize = 0
        return cls(configuration, namespace)

    async def create(self, manifest: dict[str, Any]) -> None:
        await self._request(self._core.create_namespaced_pod_without_preload_content, body=manifest)

    async def read(self, name: str) -> dict[str, Any] | None:
        """A pod's manifest and status; None = there is no such pod."""
        method = self._core.read_namespaced_pod_without_preload_content
        pod: dict[str, Any] | None = await self._request(method, name, may_be_absent=True)
        return pod

    async def delete(self, name: str) -> bool:
        """Whether the pod was there."""
        method = self._core.delete_namespaced_pod_without_preload_content
        return await self._request(method, name, may_be_absent=True) is not None

    async def list_pods(self, labels: str) -> list[dict[str, Any]]:
        method = self._core.list_namespaced_pod_without_preload_content
        answer = await self._request(method, label_selector=labels)
        items: list[dict[str, Any]] = answer["items"]
        return items

    async def watch(self, name: str) -> AsyncIterator[dict[str, Any] | None]:
        """The pod whenever it changes, for some minutes. None = it was deleted."""
        watch = Watch(return_type="object")
        events = watch.stream(
            self._core.list_namespaced_pod,
            self._namespace,
            field_selector=f"metadata.name={name}",
            # Shorter than the client's own deadline
            timeout_seconds=240,
        )
        try:
            async with watch:
                async for event in events:
                    yield None if event["type"] == "DELETED" else event["raw_object"]
        except client.ApiException as error:
            raise ClusterError(_one_line(error.reason), error.status or 0) from error
        except _FAILURES as error:
            raise ClusterError(_one_line(error)) from error

    async def is_allowed(self, verb: str, subresource: str) -> bool:
        """Whether this account may do something with pods."""
        attributes = {
            "namespace": self._namespace,
            "verb": verb,
            "resource": "pods",
            "subresource": subresource,
        }
        review = {"spec": {"resourceAttributes": attributes}}
        api = client.AuthorizationV1Api(self._client)
        method = api.create_self_subject_access_review_without_preload_content
        answer = await self._request(method, body=review, is_namespaced=False)
        return bool(answer.get("status", {}).get("allowed"))

    async def open_command(self, name: str, command: Sequence[str], *, has_input: bool) -> Any:
        """The websocket of a command that begins in a pod."""
        method = self._streams.connect_get_namespaced_pod_exec_without_preload_content
        try:
            # Shorter than the deadline of any command: the way to a node is no doing of a program.
            async with asyncio.timeout(8.0):
                return await (
                    await method(
                        name,
                        self._namespace,
                        container=EPISODE_CONTAINER,
                        command=list(command),
                        stdin=has_input,
                        stdout=True,
                        stderr=False,
                    )
                )
        except _FAILURES as error:
            raise ClusterError(_one_line(error)) from error

    async def close(self) -> None:
        await self._client.close()
        await self._stream_client.close()

    async def _request(
        self,
        method: Any,
        *arguments: Any,
        is_namespaced: bool = True,
        may_be_absent: bool = False,
        **options: Any,
    ) -> Any:
        """may_be_absent: None is returned if the API server knows no such pod."""
        if is_namespaced:
            options["namespace"] = self._namespace
        try:
            # A busy API server
            response = await method(*arguments, _request_timeout=30.0, **options)
            answer = json.loads(await response.read())
        except _FAILURES as error:
            raise ClusterError(_one_line(error)) from error
        if response.status == 404 and may_be_absent:
            return None
        if response.status >= 400:
            message = answer.get("message") or f"the API server answered {response.status}"
            raise ClusterError(_one_line(message), response.status)
        return answer


def _own_namespace() -> str:
    return NAMESPACE_FILE.read_text()


def _one_line(error: object) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    # Characters of a message that a reader needs
    return text[:500]
