"""Asks the API server, by a dry run, whether it would take a pod of every role. The chart's hook
runs it as a program:

    python -m rollcast.autoscaler.dry_run --namespace NAMESPACE --pods FILE

FILE is a JSON object: role -> `metadata` and `spec` of its pod. A refused pod ends the program with
exit code 2 and a sentence for each role, so that Helm creates nothing. Whatever may pass by itself
(an exhausted quota, a server that does not answer) and a missing right are warnings: an install
must not depend on this question.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rollcast.autoscaler.api_server import KubernetesApiError, ask, connect
from rollcast.config.errors import EXIT_USER_ERROR, UserError

REFUSALS = (400, 403, 422)
"""Statuses that the API server answers to a pod that it does not take as it is."""
UNRELATED_MESSAGE_PARTS = (
    "cannot create resource",
    "exceeded quota",
    "does not support dry run",
    "being terminated",
)
"""Parts of such messages that do not concern the pod itself."""


def ask_for_pod(api: Any, namespace: str, role: str, pod: dict[str, Any]) -> str | None:
    """The message with which the API server refuses the pod of a role; None = it takes it.

    Raises KubernetesApiError.
    """
    from kubernetes import client  # hundreds of modules, which the chart's tests need not load

    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**pod["metadata"], "generateName": f"{role}-"},
        "spec": pod["spec"],
    }
    try:
        ask(
            f"try a pod of {role}",
            namespace,
            client.CoreV1Api(api).create_namespaced_pod,
            *(namespace, body),
            dry_run="All",
            field_validation="Strict",
        )
    except KubernetesApiError as error:
        message = _refusal(error.__cause__)
        if message is None or any(words in message for words in UNRELATED_MESSAGE_PARTS):
            raise KubernetesApiError(message or str(error)) from error
        return message
    return None


def _refusal(error: BaseException | None) -> str | None:
    """The API server's own words; None = it did not refuse the pod."""
    from kubernetes import client

    if not isinstance(error, client.ApiException) or error.status not in REFUSALS:
        return None
    try:
        message = str(json.loads(error.body or "")["message"])
    except (ValueError, KeyError, TypeError):
        message = f"{error.status} {error.reason}"
    # An API server may answer with pages of text
    return " ".join(message.split())[:1000]


def warn(error: Exception) -> int:
    print(f"warning: the API server was not asked about every pod: {error}", file=sys.stderr)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Asks the API server whether it would take a pod of every role."
    )
    parser.add_argument("--namespace", required=True, help="of the release")
    parser.add_argument(
        "--pods", required=True, type=Path, help="JSON file: role -> metadata and spec of its pod"
    )
    arguments = parser.parse_args()
    exit_code = 0
    try:
        api = connect("--pods")
    except UserError as error:
        return warn(error)
    for role, pod in json.loads(arguments.pods.read_text(encoding="utf-8")).items():
        try:
            message = ask_for_pod(api, arguments.namespace, role, pod)
        except KubernetesApiError as error:
            warn(error)
            continue
        if message is not None:
            remedy = f"change {role} or everyRole, or leave this question out: hooks.dryRun=false"
            print(f"error: the API server refuses pods of {role}: {message}; {remedy}")
            exit_code = EXIT_USER_ERROR
    return exit_code


if __name__ == "__main__":
    sys.exit(main())
