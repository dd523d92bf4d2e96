"""Access to the cluster's API server: a deadline for each call, and one sentence if it refuses.

All calls of the autoscaler go through this module. An autoscaler without a Deployment never
imports the client.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from rollcast.config.errors import UserError

TIMEOUT_SECONDS = (3.0, 10.0)
"""Timeouts for connecting and for the answer."""
NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
NOT_FOUND = 404
T = TypeVar("T")


class KubernetesApiError(Exception):
    """The API server refused or did not answer. The message is one sentence."""


class ObjectNotFoundError(KubernetesApiError):
    """The object does not exist (any more)."""


def connect(asked_by: str) -> Any:
    """An API client from the pod's service account, or from the file that KUBECONFIG names.

    Raises UserError if there is neither. `asked_by`: the setting that needs a cluster, which begins
    the sentence.
    """
    from kubernetes import client
    from kubernetes import config as kubernetes_config

    configuration = client.Configuration()
    try:
        if files := os.environ.get("KUBECONFIG"):
            kubernetes_config.load_kube_config(files, client_configuration=configuration)
        else:
            kubernetes_config.load_incluster_config(client_configuration=configuration)
    except kubernetes_config.ConfigException as error:
        raise UserError(
            f"{asked_by}: no access to Kubernetes ({error}); run in a pod with a service account, "
            "or set KUBECONFIG"
        ) from error
    configuration.retries = 0
    return client.ApiClient(configuration)


def own_namespace(configured_namespace: str | None) -> str:
    """The given namespace, else the pod's. Raises UserError outside a pod if none is given."""
    if configured_namespace is not None:
        return configured_namespace
    try:
        with NAMESPACE_FILE.open() as file:
            return file.read(300).strip()
    except OSError as error:
        raise UserError(
            "autoscaler.namespace is not set and this process is not in a pod; set it"
        ) from error


def ask(action: str, namespace: str, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Call one of the client's methods.

    `action`: the call in words. Raises ObjectNotFoundError or KubernetesApiError.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call(*arguments, _request_timeout=TIMEOUT_SECONDS, **options)
    except ApiException as error:
        if error.status == NOT_FOUND:
            raise ObjectNotFoundError(
                f"cannot {action}: not found in namespace {namespace}"
            ) from error
        # HTTP status "forbidden": the role of the release lacks a right
        if error.status == 403:
            raise KubernetesApiError(
                f"cannot {action}: the service account may not; grant it"
            ) from error
        raise KubernetesApiError(
            f"cannot {action}: the API server answered {error.status} {error.reason}"
        ) from error
    except (HTTPError, ValueError, OSError) as error:
        raise KubernetesApiError(
            f"cannot {action}: {' '.join(str(error).split())[:200]}"
        ) from error


def list_all(
    action: str, namespace: str, call: Callable[..., Any], *arguments: Any, **options: Any
) -> list[Any]:
    """The items of all pages of a list, as objects or dictionaries.

    Raises ObjectNotFoundError or KubernetesApiError.
    """
    items: list[Any] = []
    following: str | None = None
    page_items = 500
    max_pages = 20
    for _ in range(max_pages):
        more = {"_continue": following} if following else {}
        answer = ask(action, namespace, call, *arguments, limit=page_items, **more, **options)
        if isinstance(answer, dict):
            items += answer.get("items", [])
            following = answer.get("metadata", {}).get("continue")
        else:
            items += answer.items
            following = answer.metadata._continue
        if not following:
            return items
    raise KubernetesApiError(f"cannot {action}: more than {max_pages * page_items} of them")
