"""Wrong values of the chart's own are refused, and the message names the value; test_check.py has
the run file's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import CHART, CPU, chart_of, helm_errors, merged, pods, render
from tests.chart.value_sets import VALUE_SETS


def environments(**fields: Any) -> dict[str, Any]:
    return {"environments": [{"name": "a", "image": {"repository": "a", "tag": "1"}, **fields}]}


def named_by(url: str) -> dict[str, Any]:
    """A run file with an environment at that address."""
    environment = {"kind": "openenv", "name": "a", "url": url, "interpreter": "/python"}
    return {"config": {"tasks": {"environments": [environment]}}}


def node_affinity(required: dict[str, Any]) -> dict[str, Any]:
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    }


BY_SCHEMA: list[tuple[str, dict[str, Any]]] = [
    ("generater", {"generater": {"replicas": 2}}),
    ("replica", {"generator": {"replica": 2}}),
    ("generator/replicas", {"generator": {"replicas": -1}}),
    ("generator/replicas", {"generator": {"replicas": "two"}}),
    ("generator/gpus", {"generator": {"gpus": 0.5}}),
    ("generator/gpus", {"generator": {"gpus": -1}}),
    ("trainer/gpus", {"trainer": {"gpus": "8"}}),
    ("trainer/nodes", {"trainer": {"nodes": 0}}),
    ("trainer/controller", {"trainer": {"controller": "deployment"}}),
    ("trainer/backoffLimit", {"trainer": {"backoffLimit": -1}}),
    ("trainer/terminationGracePeriodSeconds", {"trainer": {"terminationGracePeriodSeconds": 0}}),
    ("trainer/startupSeconds", {"trainer": {"startupSeconds": 1}}),
    ("generator/image/tag", {"generator": {"image": {"tag": "latest"}}}),
    ("generator/image/tag", {"generator": {"image": {"tag": "a b"}}}),
    ("generator/image/digest", {"generator": {"image": {"digest": "sha256:abc"}}}),
    ("trainer/image/repository", {"trainer": {"image": {"repository": ""}}}),
    ("forecaster/image/pullPolicy", {"forecaster": {"image": {"pullPolicy": "Sometimes"}}}),
    (
        "generator/resources/requests/memory",
        {"generator": {"resources": {"requests": {"memory": "8 GB"}}}},
    ),
    ("generator/resources/limits/cpu", {"generator": {"resources": {"limits": {"cpu": -1}}}}),
    (
        "generator/resources/limits/memory",
        {"generator": {"resources": {"limits": {"memory": 64}}}},
    ),  # bytes
    ("generator/resources", {"generator": {"resources": {"request": {}}}}),
    ("generator/sharedMemory", {"generator": {"sharedMemory": "lots"}}),
    ("generator/sharedMemory", {"generator": {"sharedMemory": "1e9Gi"}}),
    ("generator/sharedMemory", {"generator": {"sharedMemory": "."}}),
    ("generator/extraArgs", {"generator": {"extraArgs": "--index 1"}}),
    ("generator/extraEnv", {"generator": {"extraEnv": {"A": "b"}}}),
    ("trainer/podAnnotations/a", {"trainer": {"podAnnotations": {"a": 1}}}),
    ("trainer/tolerations", {"trainer": {"tolerations": "all"}}),
    ("trainer/priorityClassName", {"trainer": {"priorityClassName": "Very High"}}),
    ("autoscaler/mode", {"autoscaler": {"mode": "vpa"}}),
    ("autoscaler/minReplicas", {"autoscaler": {"minReplicas": 0}}),
    ("autoscaler/scaleDown/everySeconds", {"autoscaler": {"scaleDown": {"everySeconds": 0}}}),
    ("redis/external/port", {"redis": {"external": {"port": 70000}}}),
    ("redis/runAsUser", {"redis": {"runAsUser": 0}}),
    ("redis/persistence", {"redis": {"persistence": {"class": "fast"}}}),
    ("model/source", {"model": {"source": "s3"}}),
    ("model/volume/kind", {"model": {"volume": {"kind": "nfs"}}}),
    ("model/volume/hostPath", {"model": {"volume": {"kind": "hostPath", "hostPath": "models"}}}),
    ("model/revision", {"model": {"revision": ""}}),
    ("storage/accessMode", {"storage": {"accessMode": "ReadOnlyMany"}}),
    ("storage/size", {"storage": {"size": 500}}),
    ("networking/bind", {"networking": {"bind": "127.0.0.1"}}),
    ("networkPolicy/apiServerCIDR", {"networkPolicy": {"apiServerCIDR": "10.0.0.1"}}),
    ("networkPolicy/allowHub", {"networkPolicy": {"allowHub": "yes"}}),
    ("podSecurity/runAsUser", {"podSecurity": {"runAsUser": 0}}),
    ("monitoring/interval", {"monitoring": {"interval": 15}}),
    ("monitoring/rules/noStepMinutes", {"monitoring": {"rules": {"noStepMinutes": 0}}}),
    ("imagePullSecrets", {"imagePullSecrets": ["registry"]}),
    ("auth/http", {"auth": {"http": "on"}}),
    ("fullnameOverride", {"fullnameOverride": "Rollcast"}),
    ("autoscaler/letGoAtEnd", {"autoscaler": {"letGoAtEnd": "no"}}),
    ("priorityClasses/preemptionPolicy", {"priorityClasses": {"preemptionPolicy": "Always"}}),
    ("gpu/resource", {"gpu": {"resource": "gpu"}}),
    ("grader/replicas", {"grader": {"replicas": 0}}),
    ("runtime", {"grader": {"runtime": "gvisor"}}),
    ("grader/external/port", {"grader": {"external": {"port": 0}}}),
    (
        "environments/0/name",
        {"environments": [{"name": "Echo", "image": {"repository": "a", "tag": "1"}}]},
    ),
    (
        "environments/0/name",
        {"environments": [{"name": "a" * 19, "image": {"repository": "a", "tag": "1"}}]},
    ),
    ("missing property 'image'", {"environments": [{"name": "a"}]}),
    (
        "additional properties 'imagee'",
        {"environments": [{"name": "a", "image": {"repository": "a"}, "imagee": {}}]},
    ),
    ("additional properties 'namespaces'", environments(egress=[{"namespaces": []}])),
    ("environments/0/port", environments(port=0)),
    (
        "environments/0/image/tag",
        {"environments": [{"name": "a", "image": {"repository": "a", "tag": "latest"}}]},
    ),
    # What the API server refuses of a pod's parts.
    (
        "trainer/tolerations/0/operator",
        {"trainer": {"tolerations": [{"key": "a", "operator": "Exist"}]}},
    ),
    (
        "everyRole/tolerations/0/effect",
        {"everyRole": {"tolerations": [{"key": "a", "effect": "NoRun"}]}},
    ),
    (
        "missing property 'whenUnsatisfiable'",
        {"generator": {"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone"}]}},
    ),
    (
        "additional properties 'nodeSelectorTerm'",
        {"trainer": node_affinity({"nodeSelectorTerm": []})},
    ),
    (
        "trainer/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
        "matchExpressions/0/operator",
        {
            "trainer": node_affinity(
                {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "Is", "values": ["a"]}]}
                    ]
                }
            )
        },
    ),
    ("trainer/extraEnv/0/value", {"trainer": {"extraEnv": [{"name": "NUMBER", "value": 3}]}}),
    ("environments/0/extraEnv/0/value", environments(extraEnv=[{"name": "ON", "value": True}])),
    (
        "additional properties 'secretkeyref'",
        {"redis": {"envFrom": [{"secretkeyref": {"name": "a"}}]}},
    ),
    ("trainer/podLabels/team", {"trainer": {"podLabels": {"team": "deep learning"}}}),
    ("additional properties 'cost center'", {"commonLabels": {"cost center": "42"}}),
    ("generator/nodeSelector/pool", {"generator": {"nodeSelector": {"pool": "a,b"}}}),
    ("additional properties 'a b'", {"forecaster": {"podAnnotations": {"a b": "x"}}}),
    (
        "trainer/extraVolumes/0/name",
        {"trainer": {"extraVolumes": [{"name": "trainData", "emptyDir": {}}]}},
    ),
    (
        "additional properties 'claim'",
        {
            "trainer": {
                "extraVolumes": [{"name": "data", "persistentVolumeClaim": {"claim": "data"}}]
            }
        },
    ),
    ("missing property 'mountPath'", {"trainer": {"extraVolumeMounts": [{"name": "data"}]}}),
    (
        "generator/extraContainers/0/name",
        {"generator": {"extraContainers": [{"name": "Proxy", "image": "a"}]}},
    ),
    ("additional properties 'gpus'", {"trainer": {"resources": {"requests": {"gpus": 1}}}}),
    (
        "missing property 'name'",
        {"trainer": {"resourceClaims": [{"resourceClaimTemplateName": "gpus"}]}},
    ),
    (
        "networkPolicy/forecasterFrom/0",
        {"networkPolicy": {"forecasterFrom": [{"namespace": "ingress"}]}},
    ),
]
"""Spelling, kinds, bounds."""

BY_TEMPLATE: list[tuple[str, dict[str, Any]]] = [
    ("config.folder", {"config": {"folder": "/data"}}),
    ("config.redis.host", {"config": {"redis": {"host": "redis"}}}),
    ("config.redis.socket", {"config": {"redis": {"socket": "/tmp/redis.sock"}}}),
    ("config.rpc.bind", {"config": {"rpc": {"bind": "0.0.0.0"}}}),
    ("config.generator.tensor_parallel", {"config": {"generator": {"tensor_parallel": 2}}}),
    ("config.forecaster.http_port", {"config": {"forecaster": {"http_port": 8500}}}),
    ("config.autoscaler.most", {"config": {"autoscaler": {"most": 5}}}),
    ("config.autoscaler.trainer_jobs", {"config": {"autoscaler": {"trainer_jobs": "a=b"}}}),
    ("config.redis.tls", {"config": {"redis": {"tls": {"certificate_authority": "/ca.crt"}}}}),
    ("config.redis.max_bytes = 1073741824", {"config": {"redis": {"max_bytes": 1 << 30}}}),
    ("generator.sharedMemory = 8Gi", {"generator": {"sharedMemory": "8Gi"}}),
    (
        "trainer.sharedMemory = 6.5Gi",
        {"trainer": {"sharedMemory": "6.5Gi", "resources": {"limits": {"memory": "6500Mi"}}}},
    ),
    ("storage.accessMode", {"trainer": {"nodes": 2}}),
    (
        "model.volume.accessMode",
        {
            "trainer": {"nodes": 2},
            "storage": {"existingClaim": "runs"},
            "model": {"volume": {"kind": "pvc"}},
        },
    ),
    (
        "model.volume.accessMode = ReadWriteOnce",
        {
            "trainer": {"gpus": 8},
            "generator": {"gpus": 1},
            "autoscaler": {"mode": "hpa", "maxReplicas": 9},
            "model": {"volume": {"kind": "pvc"}},
        },
    ),
    (
        "model.volume.accessMode = ReadWriteOncePod",
        {"model": {"volume": {"kind": "pvc", "accessMode": "ReadWriteOncePod"}}},
    ),
    ("redis.external.host", {"redis": {"enabled": False}}),
    ("redis.external.host = other", {"redis": {"external": {"host": "other"}}}),
    (
        "redis.exporter.enabled",
        {"redis": {"enabled": False, "external": {"host": "a"}, "exporter": {"enabled": True}}},
    ),
    ("model.volume.hostPath", {"model": {"volume": {"kind": "hostPath"}}}),
    ("model.volume.hostPath = /x", {"model": {"volume": {"hostPath": "/x"}}}),
    ("model.volume.existingClaim = mine", {"model": {"volume": {"existingClaim": "mine"}}}),
    (
        "model.volume.kind",
        {"model": {"source": "folder"}, "config": {"model": {"path": "/models/mine"}}},
    ),
    (
        "config.model.path = mine",
        {"model": {"source": "folder"}, "config": {"model": {"path": "mine"}}},
    ),
    (
        "config.model.path = /models/mine",
        {"model": {"source": "hub"}, "config": {"model": {"path": "/models/mine"}}},
    ),
    ("autoscaler.minReplicas = 9", {"autoscaler": {"mode": "keda", "minReplicas": 9}}),
    (
        "autoscaler.triggerAuthentication",
        {
            "autoscaler": {"mode": "keda"},
            "config": {"rpc": {"tls": {"certificate": "/a", "private_key": "/b"}}},
        },
    ),
    (
        "config.http.tls",
        {
            "autoscaler": {"mode": "controller"},
            "config": {"http": {"tls": {"certificate": "/a", "private_key": "/b"}}},
        },
    ),
    (
        "config.forecaster.source.urls[1] = http://other-rollcast-trainer:8080/metrics",
        {
            "config": {
                "forecaster": {
                    "source": {
                        "kind": "scrape",
                        "urls": [
                            f"http://{name}-rollcast-trainer:8080/metrics"
                            for name in ("demo", "other")
                        ],
                    }
                }
            }
        },
    ),
    ("forecaster.ingress.host", {"forecaster": {"ingress": {"enabled": True}}}),
    (
        "forecaster.ingress.enabled",
        {"forecaster": {"enabled": False, "ingress": {"enabled": True, "host": "a.b"}}},
    ),
    ("networking.rdma.enabled", {"networking": {"rdma": {"enabled": True}}}),
    ("networking.rdma.root", {"networking": {"rdma": {"root": True}}}),
    ("trainer.gpus = 0", {"generator": {"gpus": 1}}),
    ("priorityClasses.trainer = 1", {"priorityClasses": {"create": True, "trainer": 1}}),
    ("monitoring.annotations", {"monitoring": {"annotations": True}, "auth": {"http": True}}),
    (
        "generator.extraEnv[0].name = HOME",
        {"generator": {"extraEnv": [{"name": "HOME", "value": "/"}]}},
    ),
    (
        "trainer.extraEnv[1].name = A",
        {"trainer": {"extraEnv": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
    ),
    ("redis.extraEnv[0].name is missing", {"redis": {"extraEnv": [{"value": "1"}]}}),
    (
        "forecaster.extraVolumes[0].name = tmp",
        {"forecaster": {"extraVolumes": [{"name": "tmp", "emptyDir": {}}]}},
    ),
    (
        "trainer.extraVolumeMounts[0].mountPath = /models",
        {"trainer": {"extraVolumeMounts": [{"name": "tmp", "mountPath": "/models"}]}},
    ),
    (
        "generator.podLabels.app.kubernetes.io/component",
        {"generator": {"podLabels": {"app.kubernetes.io/component": "trainer"}}},
    ),
    (
        "commonLabels.app.kubernetes.io/instance",
        {"commonLabels": {"app.kubernetes.io/instance": "x"}},
    ),
    (
        "trainer.podLabels.team",
        {"commonLabels": {"team": "a"}, "trainer": {"podLabels": {"team": "b"}}},
    ),
    ("generator.labels.helm.sh/chart", {"generator": {"labels": {"helm.sh/chart": "mine"}}}),
    ("trainer.extraContainers[0]", {"trainer": {"extraContainers": [{"name": "a", "image": "b"}]}}),
    (
        "generator.extraContainers[0].name = generator",
        {"generator": {"extraContainers": [{"name": "generator", "image": "b"}]}},
    ),
    ("trainer.resourceClaims", {"trainer": {"resourceClaims": [{"name": "gpus"}]}}),
    (
        "gpu.resource is empty",
        {"gpu": {"resource": ""}, "trainer": {"gpus": 1}, "generator": {"gpus": 1}},
    ),
    ("config.log", {"config": {"log": [{"kind": "tensorboard"}]}}),
    ("config.redis.scope", {"config": {"redis": {"scope": "a"}}}),
    (
        "config.grader.host",
        {"grader": {"enabled": True}, "config": {"grader": {"host": "elsewhere"}}},
    ),
    ("config.grader.token", {"config": {"grader": {"token": "hush"}}}),
    (
        "config.tasks.grading.sandbox = remote",
        {"config": {"tasks": {"grading": {"sandbox": "remote"}}}},
    ),
    (
        "config.tasks.grading.sandbox = strict",
        {"grader": {"enabled": True}, "config": {"tasks": {"grading": {"sandbox": "strict"}}}},
    ),
    (
        "config.tasks.verifiers[0].token_variable = JUDGE",
        {
            "config": {
                "tasks": {
                    "verifiers": [
                        {"kind": "http", "name": "a", "url": "http://a", "token_variable": "JUDGE"}
                    ]
                }
            }
        },
    ),
    (
        "config.recipe.distillation.teacher.token_variable = TEACHER",
        {
            "generator": {"extraEnv": [{"name": "TEACHER", "value": "x"}]},
            "config": {
                "recipe": {
                    "distillation": {
                        "teacher": {
                            "kind": "endpoint",
                            "url": "http://a/v1",
                            "model": "m",
                            "devices": 1,
                            "token_variable": "TEACHER",
                        }
                    }
                }
            },
        },
    ),
    ("grader.external.host = a.b", {"grader": {"enabled": True, "external": {"host": "a.b"}}}),
    ("grader.external.tokenSecret = mine", {"grader": {"external": {"tokenSecret": "mine"}}}),
    (
        "grader.runtimeClassName is empty",
        {
            "grader": {"enabled": True, "runtimeClassName": ""},
            "config": {"grader": {"sandbox": "gvisor"}},
        },
    ),
    (
        "grader.extraEnv[0].name = ROLLCAST_GRADER_TOKEN",
        {"grader": {"extraEnv": [{"name": "ROLLCAST_GRADER_TOKEN"}]}},
    ),
    (
        "environments[0].image.tag is empty",
        {"environments": [{"name": "a", "image": {"repository": "a"}}]},
    ),
    (
        "environments[1].name = a",
        {"environments": [{"name": "a", "image": {"repository": "a", "tag": "1"}}] * 2},
    ),
    (
        "environments[0].scaling.maxReplicas = 2",
        environments(replicas=3, scaling={"maxReplicas": 2}),
    ),
    ("environments[0].replicas = 0", environments(replicas=0, scaling={"maxReplicas": 2})),
    (
        "environments[0].extraEnv[0].name = HOME",
        environments(extraEnv=[{"name": "HOME", "value": "/"}]),
    ),
    (
        "environments[0].extraVolumes[1].name = a",
        environments(extraVolumes=[{"name": "a", "emptyDir": {}}] * 2),
    ),
    (
        "environments[0].extraVolumeMounts[0].mountPath = /tmp",
        environments(extraVolumeMounts=[{"name": "tmp", "mountPath": "/tmp"}]),
    ),
    (
        "environments[0].podLabels.app.kubernetes.io/name",
        environments(podLabels={"app.kubernetes.io/name": "x"}),
    ),
    ("environments[0].labels.helm.sh/chart", environments(labels={"helm.sh/chart": "x"})),
    (
        "config.tasks.environments[0].url = http://demo-rollcast-env-a:8001: no entry of "
        "environments has this address; there are http://demo-rollcast-env-a:8000",
        merged(environments(), named_by("http://demo-rollcast-env-a:8001")),
    ),
    (
        "config.tasks.environments[0].url = https://demo-rollcast-env-a:8000/: no entry",
        merged(environments(), named_by("https://demo-rollcast-env-a:8000/")),
    ),
    (
        "no entry of environments has this address; add one",
        named_by("http://demo-rollcast-env-a.ml.svc:8000"),
    ),
    (
        "config.tasks.environments[0].mcp[1].token_variable = FILES",
        {
            "config": {
                "tasks": {
                    "environments": [
                        {
                            "kind": "tools",
                            "name": "t",
                            "mcp": [
                                {"name": "a", "command": ["a"]},
                                {"name": "b", "url": "http://b", "token_variable": "FILES"},
                            ],
                        }
                    ]
                }
            }
        },
    ),
    ("config.forecaster.push_token", {"config": {"forecaster": {"push_token": "hush"}}}),
    (
        "forecaster.extraEnv[0].name = ROLLCAST_PUSH_TOKEN",
        {"forecaster": {"extraEnv": [{"name": "ROLLCAST_PUSH_TOKEN"}]}},
    ),
    (
        "trainer.podAnnotations.checksum/config",
        {"trainer": {"podAnnotations": {"checksum/config": "1"}}},
    ),
    (
        "generator.extraVolumeMounts[0].name = data: no volume has this name",
        {"generator": {"extraVolumeMounts": [{"name": "data", "mountPath": "/data"}]}},
    ),
    (
        "generator.extraContainers[0].volumeMounts[0].name = data",
        {
            "generator": {
                "extraContainers": [
                    {
                        "name": "a",
                        "image": "a",
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ]
            }
        },
    ),
    (
        "environments[0].extraVolumeMounts[0].name = data",
        environments(extraVolumeMounts=[{"name": "data", "mountPath": "/data"}]),
    ),
    (
        "generator.extraContainers[0].image is missing",
        {"generator": {"extraContainers": [{"name": "a"}]}},
    ),
    (
        "trainer.extraVolumes[0] (data) has 0 sources",
        {"trainer": {"extraVolumes": [{"name": "data"}]}},
    ),
    (
        "everyRole.extraVolumes[0] (data) has 2 sources",
        {
            "everyRole": {
                "extraVolumes": [{"name": "data", "emptyDir": {}, "secret": {"secretName": "a"}}]
            }
        },
    ),
    (
        "redis.extraEnv[0] (A) has value and valueFrom",
        {
            "redis": {
                "extraEnv": [
                    {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}
                ]
            }
        },
    ),
    (
        "trainer.tolerations[0].key is empty",
        {"trainer": {"tolerations": [{"operator": "Equal", "value": "a"}]}},
    ),
    (
        "everyRole.tolerations[0].value = a",
        {"everyRole": {"tolerations": [{"key": "b", "operator": "Exists", "value": "a"}]}},
    ),
    (
        "generator.tolerations[0].tolerationSeconds",
        {
            "generator": {
                "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 30}]
            }
        },
    ),
    (
        "trainer.resources.requests.cpu = 2: exceeds limits.cpu 1500m",
        {"trainer": {"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}}},
    ),
    (
        "trainer.resources.requests.cpu = 1e1: exceeds limits.cpu 9",
        {"trainer": {"resources": {"requests": {"cpu": "1e1"}, "limits": {"cpu": "9"}}}},
    ),
    (
        "trainer.resources.requests.memory = 9Gi: exceeds limits.memory 8G",
        {"trainer": {"resources": {"requests": {"memory": "9Gi"}, "limits": {"memory": "8G"}}}},
    ),
    (
        (
            "generator.resources.requests.nvidia.com/gpu = 1: a device has no other request than "
            "its limit"
        ),
        {"generator": {"resources": {"requests": {"nvidia.com/gpu": 1}}}},
    ),
    (
        "hooks.resources.requests.memory = 2Gi",
        {"hooks": {"resources": {"requests": {"memory": "2Gi"}}}},
    ),
    (
        "global.imageRegistry = https://registry.example.com: is not a registry",
        {"global": {"imageRegistry": "https://registry.example.com"}},
    ),
    (
        "global.imageRegistry = registry.example.com/",
        {"global": {"imageRegistry": "registry.example.com/"}},
    ),
    ("redis.image.registry = docker.io/", {"redis": {"image": {"registry": "docker.io/"}}}),
    (
        "trainer.image.repository = team/trainer:1.2: is not a repository",
        {"trainer": {"image": {"repository": "team/trainer:1.2"}}},
    ),
    (
        "environments[0].image.repository = team/Echo",
        {"environments": [{"name": "a", "image": {"repository": "team/Echo", "tag": "1"}}]},
    ),
]
"""Rules across values, and between them and the run file."""


def test_there_are_enough() -> None:
    assert len(BY_SCHEMA) + len(BY_TEMPLATE) >= 60
    assert len(VALUE_SETS) >= 25


@pytest.fixture(scope="module")
def schema_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart without a template."""
    return chart_of(tmp_path_factory.mktemp("schema"))


@pytest.fixture(scope="module")
def rules_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with the templates that refuse values and render nothing,
    and without its schema.
    """
    chart = chart_of(tmp_path_factory.mktemp("rules"), "validate.yaml")
    (chart / "values.schema.json").unlink()
    return chart


def check_refused(named: str, values: dict[str, Any], chart: Path) -> None:
    with pytest.raises(helm_errors.HelmError) as refused:
        render(merged(CPU, values), path=chart)
    assert named in str(refused.value) or f"/{named}" in str(refused.value)


@pytest.mark.parametrize(
    ("named", "values"), BY_SCHEMA, ids=[f"{i}-{named}" for i, (named, _) in enumerate(BY_SCHEMA)]
)
def test_the_schema_names_the_value(named: str, values: dict[str, Any], schema_alone: Path) -> None:
    check_refused(named, values, schema_alone)


@pytest.mark.parametrize(
    ("named", "values"),
    BY_TEMPLATE,
    ids=[f"{i}-{named}" for i, (named, _) in enumerate(BY_TEMPLATE)],
)
def test_the_template_names_the_value(
    named: str, values: dict[str, Any], rules_alone: Path
) -> None:
    check_refused(named, values, rules_alone)


WHOLE = (
    "generator/replicas",
    "config.redis.host",
    "generator.extraEnv[0].name = HOME",
    "config.grader.host",
    "environments[0].image.tag is empty",
    "redis.external.host",
    "networking.rdma.enabled",
    "model.volume.kind",
    "trainer.tolerations[0].key is empty",
)
"""Of the schema and of each template that refuses."""


@pytest.mark.parametrize("named", WHOLE)
def test_the_whole_chart_refuses_it_in_the_same_words(named: str) -> None:
    """The schema lets the value pass, and no other template fails before with words of its own."""
    check_refused(named, dict(BY_SCHEMA + BY_TEMPLATE)[named], CHART)


def test_what_renders_nothing_refuses_nothing_that_is_right(
    schema_alone: Path, rules_alone: Path
) -> None:
    assert [render(CPU, path=chart) for chart in (schema_alone, rules_alone)] == [[], []]


RIGHT_PARTS: dict[str, dict[str, Any]] = {
    "registries with ports and paths": {
        "global": {"imageRegistry": "10.0.0.7:5000"},
        "trainer": {"image": {"repository": "registry.example.com:5000/team/rl__trainer"}},
        "redis": {"image": {"registry": "mirror.example.com/docker.io"}},
    },
    "a registry by its IPv6 address": {
        "global": {"imageRegistry": "[::1]:5000"},
        "trainer": {"image": {"repository": "[fd00::7]:5000/team/trainer"}},
    },
    "a toleration with the default operator": {
        "trainer": {"tolerations": [{"key": "gpu", "operator": ""}]}
    },
    "amounts in every notation of Kubernetes": {
        "trainer": {
            "sharedMemory": "1e9",
            "resources": {"requests": {"cpu": ".5"}, "limits": {"memory": "8E9"}},
        },
        "generator": {"resources": {"requests": {"cpu": "1e1"}, "limits": {"cpu": "1.e1"}}},
        "forecaster": {"resources": {"requests": {"cpu": "500000u"}, "limits": {"cpu": "+1"}}},
    },
    "a toleration of everything": {"everyRole": {"tolerations": [{"operator": "Exists"}]}},
    "requests that are the limits": {
        "trainer": {
            "resources": {"requests": {"cpu": "1500m", "memory": 6 << 30}, "limits": {"cpu": 1.5}}
        }
    },
    "a limit below the request of a role that is off": {
        "everyRole": {"resources": {"limits": {"cpu": 3}}}
    },
    "a variable without a value": {"generator": {"extraEnv": [{"name": "A.b-c"}]}},
}


@pytest.mark.parametrize("name", RIGHT_PARTS)
def test_what_the_api_server_takes_is_not_refused(name: str) -> None:
    assert render(merged(CPU, RIGHT_PARTS[name]))


def test_rules_know_every_volume_of_the_charts_pods() -> None:
    """Else a right mount would be refused: a sidecar may mount each volume that the chart gives its
    pod.
    """
    values = merged(
        merged(CPU, environments()),
        {"autoscaler": {"mode": "controller"}, "grader": {"enabled": True}},
    )
    mounts = {
        pod.role: [
            {"name": volume["name"], "mountPath": f"/more/{volume['name']}"}
            for volume in pod.spec["volumes"]
        ]
        for pod in pods(render(values))
    }
    roles = ("trainer", "generator", "forecaster", "autoscaler", "grader", "redis")
    values = merged(values, {role: {"extraVolumeMounts": mounts[role]} for role in roles})
    assert render(merged(values, environments(extraVolumeMounts=mounts["env-a"])))


def test_a_secret_is_not_shown() -> None:
    with pytest.raises(Exception, match=r"config\.redis\.password") as refused:
        render(merged(CPU, {"config": {"redis": {"password": "hunter2"}}}))
    assert "hunter2" not in str(refused.value)
