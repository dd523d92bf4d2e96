"""Writes rollcast/values.schema.json: what values.yaml may hold; and the run file's defaults that
templates/validate.yaml compares the chart's values with.

    python helm/values_schema.py [--check]

Keywords of draft 07 only, so that Helm 3 and 4 enforce the same. `config`, the run file, is open
here: `rollcast config check` looks at it before an install (templates/check.yaml), with the
sentences that every user of a run file reads. Fields that the chart itself sets in it are refused
by templates/validate.yaml, which can name the remedy.

Parts of pods (volumes, containers, affinity ..) are described by Kubernetes' own schema, and
narrowed where the API server is stricter than that. Rules between them are in
templates/pods/validate.yaml.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rollcast.config.base import REDIS_SCOPE
from rollcast.config.connections import Redis
from rollcast.rollouts.keys import Keys
from rollcast.rollouts.redis_users import COMMANDS, permissions

CHART_FOLDER = Path(__file__).parent / "rollcast"
SCHEMA = CHART_FOLDER / "values.schema.json"
DEFAULTS = CHART_FOLDER / "files" / "run-defaults.json"
Node = dict[str, Any]

BOOLEAN: Node = {"type": "boolean"}
STRING: Node = {"type": "string"}
MAP: Node = {"type": "object"}
MAPS: Node = {"type": "object", "additionalProperties": {"type": "object"}}
OBJECTS: Node = {"type": "array", "items": {"type": "object"}}
KUBERNETES = "kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
"""In the package kubernetes-validate: the newest version that it has, every field of which is
accepted."""
_NAMED = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_DOMAIN = r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*"
_KEY = f"^(({_DOMAIN})/)?{_NAMED}$"
LABEL_VALUE: Node = {"type": "string", "pattern": f"^({_NAMED})?$"}
LABEL_NAME: Node = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"}
"""Name of a volume or a container."""
QUANTITY: Node = {
    "type": "string",
    "pattern": r"^\+?([0-9]+\.?[0-9]*|\.[0-9]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][-+]?[0-9]+)?$",  # noqa: E501
    "description": "a Kubernetes quantity, such as 500m, 4 or 16Gi",
}
MIB = 1 << 20
DURATION: Node = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$", "description": "such as 15s"}
NAME: Node = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$"}
SUB_PATH: Node = {
    "type": "string",
    "pattern": r"^([^/.][^/]*(/[^/.][^/]*)*)?$",
    "description": "a folder of the volume",
}


def integer(least: int, most: int | None = None) -> Node:
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


UNIX_ID: Node = {"type": ["integer", "null"], "minimum": 1}


def choice(*values: str) -> Node:
    return {"type": "string", "enum": list(values)}


def mapping(**properties: Node) -> Node:
    """An object with these fields and no others."""
    return {"type": "object", "additionalProperties": False, "properties": properties}


def part(kind: str) -> Node:
    """An object of Kubernetes' own."""
    return {"$ref": f"#/definitions/{kind}"}


def parts(kind: str) -> Node:
    return {"type": "array", "items": part(kind)}


def keyed(value: Node) -> Node:
    """A mapping whose keys are those of labels."""
    return {"type": "object", "patternProperties": {_KEY: value}, "additionalProperties": False}


LABELS = part("Labels")
ANNOTATIONS = part("Annotations")
RESOURCES = part("Resources")
IMAGE = part("Image")
NARROWED: dict[tuple[str, str], Node] = {
    ("Toleration", "operator"): choice("", "Exists", "Equal", "Lt", "Gt"),
    ("Toleration", "effect"): choice("", "NoSchedule", "PreferNoSchedule", "NoExecute"),
    ("TopologySpreadConstraint", "whenUnsatisfiable"): choice("DoNotSchedule", "ScheduleAnyway"),
    ("TopologySpreadConstraint", "nodeAffinityPolicy"): choice("Honor", "Ignore"),
    ("TopologySpreadConstraint", "nodeTaintsPolicy"): choice("Honor", "Ignore"),
    ("TopologySpreadConstraint", "maxSkew"): integer(1),
    ("TopologySpreadConstraint", "minDomains"): integer(1),
    ("NodeSelectorRequirement", "operator"): choice(
        "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"
    ),
    ("LabelSelectorRequirement", "operator"): choice("In", "NotIn", "Exists", "DoesNotExist"),
    ("LabelSelector", "matchLabels"): LABELS,
    ("PreferredSchedulingTerm", "weight"): integer(1, 100),
    ("WeightedPodAffinityTerm", "weight"): integer(1, 100),
    ("Volume", "name"): LABEL_NAME,
    ("Container", "name"): LABEL_NAME,
    ("Container", "imagePullPolicy"): choice("Always", "IfNotPresent", "Never"),
    ("Container", "restartPolicy"): choice("Always", "OnFailure", "Never"),
    ("EnvVar", "name"): {"type": "string", "pattern": "^[^=]+$"},
}
"""(kind, field) -> the values that the API server accepts, where Kubernetes' schema has only a
type."""


def _short(reference: str) -> str:
    return reference.rpartition(".")[2]


def _cleaned(node: Any) -> Any:
    """The schema of one kind as draft 07 has it, without descriptions."""
    if isinstance(node, list):
        return [_cleaned(item) for item in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("$ref"), str):
        return part(_short(node["$ref"]))
    dropped = ("description", "format", "default")
    return {
        key: _cleaned(value)
        for key, value in node.items()
        if not key.startswith("x-") and not (key in dropped and not isinstance(value, dict))
    }


def _references(node: Any) -> Iterator[str]:
    """The kinds that a cleaned schema names."""
    yield from re.findall(r'"#/definitions/(\w+)"', json.dumps(node))


def definitions(schema: Node) -> Node:
    """The schemas of the kinds that `schema` names, and of those that they name: the chart's own,
    else Kubernetes'.
    """
    known = json.loads(
        files("kubernetes_validate").joinpath(KUBERNETES).read_text(encoding="utf-8")
    )["$defs"]
    groups = re.compile(r"\.(core\.v1|networking\.v1|apimachinery)\.")
    by_kind = {_short(name): node for name, node in known.items() if groups.search(name)}
    described: Node = {}
    waiting = list(_references(schema))
    while waiting:
        kind = waiting.pop()
        if kind not in described:
            described[kind] = CHART_KINDS.get(kind) or _cleaned(by_kind[kind])
            for (narrowed, field), node in NARROWED.items():
                if narrowed == kind:
                    described[kind]["properties"][field] = node
            waiting += _references(described[kind])
    return dict(sorted(described.items()))


ACCESS_MODE = choice("ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany")


def quantities(least_bytes: int) -> Node:
    """Amounts of resources, also as plain numbers: `--set` makes them of what looks like one."""
    counted = {"type": "number", "minimum": 0}
    in_bytes = {
        "type": "number",
        "minimum": least_bytes,
        "description": "bytes; with a unit: a text such as 16Gi",
    }
    return {
        "type": "object",
        "properties": {"memory": {"anyOf": [QUANTITY, in_bytes]}},
        "patternProperties": {
            "^(cpu|ephemeral-storage|hugepages-[0-9]+[A-Za-z]+|[^/]+/[^/]+)$": {
                "anyOf": [QUANTITY, counted]
            }
        },
        "additionalProperties": False,
    }


CHART_KINDS: dict[str, Node] = {
    "Labels": keyed(LABEL_VALUE),
    "Annotations": keyed(STRING),
    "Resources": mapping(requests=quantities(MIB), limits=quantities(MIB)),
    "Image": mapping(
        registry=STRING,
        repository={"type": "string", "minLength": 1},
        tag={
            "type": "string",
            "pattern": "^([A-Za-z0-9_][A-Za-z0-9._-]{0,127})?$",
            "not": {"const": "latest"},
        },
        digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        pullPolicy=choice("Always", "IfNotPresent", "Never"),
    ),
}
EVERY_ROLE: dict[str, Node] = {
    "image": IMAGE,
    "resources": RESOURCES,
    "extraArgs": {"type": "array", "items": STRING},
    "extraEnv": parts("EnvVar"),
    "envFrom": parts("EnvFromSource"),
    "extraContainers": parts("Container"),
    "extraInitContainers": parts("Container"),
    "extraVolumes": parts("Volume"),
    "extraVolumeMounts": parts("VolumeMount"),
    "labels": LABELS,
    "annotations": ANNOTATIONS,
    "podAnnotations": ANNOTATIONS,
    "podLabels": LABELS,
    "nodeSelector": LABELS,
    "tolerations": parts("Toleration"),
    "affinity": part("Affinity"),
    "topologySpreadConstraints": parts("TopologySpreadConstraint"),
    "schedulerName": NAME,
    "runtimeClassName": NAME,
    "priorityClassName": NAME,
}
DEVICES: dict[str, Node] = {"resourceClaims": parts("PodResourceClaim"), "hostNetwork": BOOLEAN}
"""Of the roles that have devices."""
PLACED = (
    "resources", "labels", "annotations", "podAnnotations", "podLabels", "nodeSelector",
    "tolerations", "affinity",
    "topologySpreadConstraints", "schedulerName", "runtimeClassName", "priorityClassName",
)  # fmt: skip
"""Of EVERY_ROLE: where a pod is put, and what its owner writes on it."""
ENVIRONMENT: Node = mapping(
    name={"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,16}[a-z0-9])?$"},
    image={"allOf": [IMAGE, {"required": ["repository"]}]},
    command={"type": "array", "items": STRING},
    args={"type": "array", "items": STRING},
    port=integer(1, 65535),
    replicas=integer(0, 4096),
    scaling=mapping(maxReplicas=integer(0, 4096), cpuPercent=integer(1, 1000)),
    sticky=BOOLEAN,
    readinessPath={"type": "string", "pattern": "^(/.*)?$"},
    startupSeconds=integer(10),
    terminationGracePeriodSeconds=integer(1),
    egress={
        "type": "array",
        "items": mapping(to=parts("NetworkPolicyPeer"), ports=parts("NetworkPolicyPort")),
    },
    podDisruptionBudget=mapping(enabled=BOOLEAN, maxUnavailable=integer(1)),
    **{
        field: EVERY_ROLE[field]
        for field in ("extraEnv", "envFrom", "extraVolumes", "extraVolumeMounts", *PLACED)
    },
) | {"required": ["name", "image"]}
PEERS = parts("NetworkPolicyPeer")

CHART = mapping(
    **{"global": {"type": "object", "properties": {"imageRegistry": STRING}}},
    config={**MAP, "description": "the run file, as `rollcast config schema` describes it"},
    enabled=BOOLEAN,
    defaultsVersion=integer(1),
    nameOverride=NAME,
    fullnameOverride=NAME,
    model=mapping(
        source=choice("hub", "folder", "arithmetic"),
        revision={"type": "string", "minLength": 1},
        configs=MAPS,
        tokenSecret=NAME,
        volume=mapping(
            kind=choice("emptyDir", "pvc", "hostPath"),
            existingClaim=NAME,
            storageClass=STRING,
            accessMode=ACCESS_MODE,
            hostPath={"type": "string", "pattern": "^(/.*)?$"},
            size=QUANTITY,
            subPath=SUB_PATH,
        ),
    ),
    commonLabels=LABELS,
    claimLabels=LABELS,
    gpu=mapping(
        resource={"type": "string", "pattern": "^([a-z0-9.-]+/[A-Za-z0-9._-]+)?$"},
        memoryGB={"type": "number", "minimum": 0},
    ),
    everyRole=mapping(
        **{field: node for field, node in EVERY_ROLE.items() if field not in ("image", "extraArgs")}
    ),
    generator=mapping(
        **EVERY_ROLE,
        **DEVICES,
        replicas=integer(0, 4096),
        gpus=integer(0, 64),
        sharedMemory=QUANTITY,
        startupSeconds=integer(10),
        handBackSeconds=integer(1),
        packing=BOOLEAN,
        podDisruptionBudget=mapping(enabled=BOOLEAN, maxUnavailable=integer(1)),
    ),
    trainer=mapping(
        **EVERY_ROLE,
        **DEVICES,
        suspend=BOOLEAN,
        controller=choice("job", "jobset"),
        nodes=integer(1, 1024),
        gpus=integer(0, 64),
        sharedMemory=QUANTITY,
        startupSeconds=integer(10),
        terminationGracePeriodSeconds=integer(1),
        backoffLimit=integer(0),
        ttlSecondsAfterFinished=integer(0),
        podDisruptionBudget=mapping(enabled=BOOLEAN),
    ),
    forecaster=mapping(
        **EVERY_ROLE,
        enabled=BOOLEAN,
        persistence=mapping(
            enabled=BOOLEAN, existingClaim=NAME, storageClass=STRING, size=QUANTITY
        ),
        service=mapping(
            type=choice("ClusterIP", "NodePort", "LoadBalancer"), annotations=ANNOTATIONS
        ),
        ingress=mapping(
            enabled=BOOLEAN, className=NAME, annotations=ANNOTATIONS, host=NAME, tlsSecret=NAME
        ),
    ),
    autoscaler=mapping(
        **EVERY_ROLE,
        fallbackReplicas={
            **integer(0),
            "description": "was removed; accepted, for releases of an earlier chart",
        },
        mode=choice("none", "keda", "hpa", "controller"),
        minReplicas=integer(1, 4096),
        maxReplicas=integer(1, 4096),
        letGoAtEnd=BOOLEAN,
        replaceTrainer=BOOLEAN,
        triggerAuthentication=NAME,
        scaleDown=mapping(stabilizationSeconds=integer(0, 3600), everySeconds=integer(1, 1800)),
    ),
    sweep=mapping(serviceAccount=NAME, generators=integer(1, 4096)),
    grader=mapping(
        **EVERY_ROLE,
        enabled=BOOLEAN,
        replicas=integer(1, 1024),
        external=mapping(host=STRING, port=integer(1, 65535), tokenSecret=NAME),
        podDisruptionBudget=mapping(enabled=BOOLEAN, maxUnavailable=integer(1)),
    ),
    environments={"type": "array", "items": ENVIRONMENT},
    redis=mapping(
        **EVERY_ROLE,
        enabled=BOOLEAN,
        external=mapping(
            host=STRING,
            port=integer(1, 65535),
            tls=BOOLEAN,
            passwordSecret=NAME,
            trainerUser=STRING,
            generatorUser=STRING,
        ),
        runAsUser=integer(1),
        persistence=mapping(enabled=BOOLEAN, storageClass=STRING, size=QUANTITY),
        exporter=mapping(enabled=BOOLEAN, image=IMAGE, resources=RESOURCES),
    ),
    generatorsOnly=mapping(
        enabled=BOOLEAN,
        trainerHost=STRING,
        trainerPort=integer(1, 65535),
        redisScope={"type": "string", "pattern": REDIS_SCOPE},
    ),
    auth=mapping(existingSecret=NAME, http=BOOLEAN, push=BOOLEAN),
    storage=mapping(
        existingClaim=NAME,
        storageClass=STRING,
        accessMode=ACCESS_MODE,
        size=QUANTITY,
        subPath=SUB_PATH,
        keep=BOOLEAN,
    ),
    networkPolicy=mapping(
        enabled=BOOLEAN,
        prometheus=mapping(
            namespaceSelector=part("LabelSelector"), podSelector=part("LabelSelector")
        ),
        forecasterFrom=PEERS,
        generatorFrom=PEERS,
        remoteGenerators=PEERS,
        autoscalerFrom=PEERS,
        proxyPorts={"type": "array", "items": integer(1, 65535)},
        allowHub={"type": ["boolean", "null"]},
        apiServerCIDR={"type": "string", "pattern": "^([0-9a-fA-F.:]+/[0-9]{1,3})?$"},
    ),
    hooks=mapping(
        resources=RESOURCES,
        deleteTrainers=BOOLEAN,
        watchImage=BOOLEAN,
        pullSeconds=integer(1),
        dryRun=BOOLEAN,
    ),
    networking=mapping(
        bind=choice("0.0.0.0", "::"),  # noqa: S104  (in a pod)
        interface=STRING,
        rdma=mapping(enabled=BOOLEAN, resource=STRING, count=integer(1), root=BOOLEAN),
    ),
    podSecurity=mapping(
        runAsUser=UNIX_ID,
        runAsGroup=UNIX_ID,
        fsGroup=UNIX_ID,
        supplementalGroups={"type": "array", "items": integer(1)},
    ),
    serviceAccount=mapping(name=NAME, annotations=ANNOTATIONS),
    priorityClasses=mapping(
        create=BOOLEAN,
        preemptionPolicy=choice("Never", "PreemptLowerPriority"),
        trainer=integer(-2147483648, 1000000000),
        generator=integer(-2147483648, 1000000000),
    ),
    monitoring=mapping(
        enabled=BOOLEAN,
        interval=DURATION,
        namespace=NAME,
        labels=LABELS,
        relabelings=OBJECTS,
        tlsConfig=MAP,
        annotations=BOOLEAN,
        rules=mapping(
            enabled=BOOLEAN, noStepMinutes=integer(1), runbookUrl={"type": "string", "minLength": 1}
        ),
        dashboards=mapping(
            enabled=BOOLEAN,
            labels=LABELS,
            annotations=ANNOTATIONS,
            datasourceLabels={"anyOf": [LABELS, {"type": "null"}]},
        ),
    ),
    extraObjects={"type": "array", "items": {"type": ["object", "string"]}},
    imagePullSecrets={"type": "array", "items": mapping(name=NAME)},
)


def values_schema() -> Node:
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the chart rollcast",
        **CHART,
        "definitions": definitions(CHART),
    }


def _schema_text() -> str:
    """The schema, with each kind on a line of its own."""
    schema = values_schema()
    kinds = schema.pop("definitions")
    lines = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(node)}" for kind, node in kinds.items())
    text = json.dumps(schema, indent=1, ensure_ascii=False).removesuffix("\n}")
    return f'{text},\n "definitions": {{\n{lines}\n }}\n}}\n'


def run_defaults() -> Node:
    """What the chart needs of the code: defaults of the run file for its rules across values, and
    the permissions of each Redis user.
    """
    users = {role: permissions(role, Keys("RUN").pattern) for role in COMMANDS}
    return {"redis": {"max_bytes": Redis.model_fields["max_bytes"].default, "users": users}}


def main() -> int:
    texts = {SCHEMA: _schema_text(), DEFAULTS: json.dumps(run_defaults(), indent=1) + "\n"}
    if "--check" in sys.argv:
        stale = [
            file
            for file, text in texts.items()
            if not file.exists() or file.read_text(encoding="utf-8") != text
        ]
        for file in stale:
            print(f"{file} is out of date: run python helm/values_schema.py")
        return 1 if stale else 0
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
