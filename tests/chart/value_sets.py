"""Values that must render: every profile, every switch, each role's additions, and combinations."""

from __future__ import annotations

from typing import Any

from tests.chart.rendering import PROFILES, merged, profile

CPU = profile("cpu")
NO_HUB_MODEL = {"model": {"source": "arithmetic"}}
_ROLES = ("generator", "trainer", "forecaster", "autoscaler", "grader", "redis")
_SIDECAR: dict[str, Any] = {
    "name": "proxy",
    "image": "proxy:1",
    "restartPolicy": "Always",
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
}
_ADDED: dict[str, Any] = {
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "envFrom": [{"configMapRef": {"name": "proxies"}}],
    "extraContainers": [_SIDECAR],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "schedulerName": "volcano",
    "labels": {"team": "rl"},
    "annotations": {"team": "rl"},
    "podAnnotations": {"team": "rl"},
    "podLabels": {"cost-center": "42"},
    "nodeSelector": {"pool": "a"},
    "tolerations": [{"key": "pool", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
            }
        }
    },
    "runtimeClassName": "nvidia",
    "priorityClassName": "high",
}
CERTIFICATES = {
    "extraVolumes": [{"name": "certificates", "secret": {"secretName": "certificates"}}],
    "extraVolumeMounts": [{"name": "certificates", "mountPath": "/certificates", "readOnly": True}],
}
_PEM = {
    "certificate_authority": "/certificates/ca.crt",
    "certificate": "/certificates/tls.crt",
    "private_key": "/certificates/tls.key",
}
_CLAIMS = [{"name": "gpus", "resourceClaimTemplateName": "four-gpus"}]
_DIGEST = "sha256:" + "0123456789abcdef" * 4

CHANGES: dict[str, dict[str, Any]] = {
    "hpa": {"autoscaler": {"mode": "hpa"}},
    "keda": {"autoscaler": {"mode": "keda", "minReplicas": 2, "maxReplicas": 6}},
    "controller": {"autoscaler": {"mode": "controller"}},
    "hpa-without-tolerance": {
        "autoscaler": {"mode": "hpa"},
        "config": {"autoscaler": {"hpa_tolerance": 0}},
    },
    "keda-with-little-tolerance": {
        "autoscaler": {"mode": "keda"},
        "config": {"autoscaler": {"hpa_tolerance": 0.05}},
    },
    "generators-stay-at-the-end": {"autoscaler": {"mode": "controller", "letGoAtEnd": False}},
    "autoscaler-from-prometheus": {
        "autoscaler": {"mode": "keda"},
        "config": {
            "autoscaler": {
                "source": {"kind": "prometheus", "url": "http://prometheus.monitoring:9090"}
            },
            "forecaster": {
                "source": {"kind": "prometheus", "url": "http://prometheus.monitoring:9090"}
            },
        },
    },
    "jobset": {"trainer": {"controller": "jobset"}},
    "two-cpu-nodes": {"trainer": {"nodes": 2}, "storage": {"accessMode": "ReadWriteMany"}},
    "no-forecaster": {"forecaster": {"enabled": False}},
    "forecaster-without-volume": {"forecaster": {"persistence": {"enabled": False}}},
    "ingress": {
        "forecaster": {
            "ingress": {
                "enabled": True,
                "host": "rl.example.com",
                "tlsSecret": "tls",
                "className": "nginx",
            },
            "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
        },
        "networkPolicy": {
            "forecasterFrom": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}
            ]
        },
    },
    "external-redis": {
        "redis": {
            "enabled": False,
            "external": {"host": "redis.example.com", "tls": True, "passwordSecret": "mine"},
        }
    },
    "generators-only": {
        "config": {"weights": {"store": {"location": "s3://bucket/weights"}}},
        "generatorsOnly": {"enabled": True, "trainerHost": "trainer.example.com"},
        "redis": {"external": {"host": "redis.example.com"}},
        "auth": {"existingSecret": "auth-of-the-first"},
    },
    "pulled-weights": {
        "config": {"weights": {"store": {"location": "s3://bucket/weights"}}},
        "networkPolicy": {"remoteGenerators": [{"ipBlock": {"cidr": "10.8.0.0/16"}}]},
    },
    "external-redis-with-users": {
        "redis": {
            "enabled": False,
            "external": {
                "host": "redis.example.com",
                "passwordSecret": "mine",
                "trainerUser": "demo-trainer",
                "generatorUser": "demo-generator",
            },
        }
    },
    "external-redis-without-password": {
        "redis": {"enabled": False, "external": {"host": "10.0.0.7"}}
    },
    "redis-in-memory-with-exporter": {
        "redis": {"persistence": {"enabled": False}, "exporter": {"enabled": True}}
    },
    "own-secret": {"auth": {"existingSecret": "mine", "http": True}},
    "keda-with-tls": {
        "autoscaler": {"mode": "keda", "triggerAuthentication": "rollcast"},
        "config": {"rpc": {"tls": _PEM}},
    },
    "http-token": {"auth": {"http": True}, "monitoring": {"enabled": True}},
    "push-token": {"auth": {"push": True}},
    "tls-everywhere": {
        "config": {"rpc": {"tls": _PEM}, "http": {"tls": _PEM}},
        "monitoring": {"enabled": True},
        "trainer": CERTIFICATES,
        "generator": CERTIFICATES,
        "forecaster": CERTIFICATES,
    },
    "monitoring": {
        "monitoring": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "rules": {"enabled": True},
            "dashboards": {"enabled": True, "annotations": {"grafana_folder": "Rollcast"}},
        },
        "autoscaler": {"mode": "keda"},
        "redis": {"exporter": {"enabled": True}},
    },
    "annotations-for-prometheus": {"monitoring": {"annotations": True}},
    "no-network-policy": {"networkPolicy": {"enabled": False}},
    "closed-network": {
        "networkPolicy": {"allowHub": False, "apiServerCIDR": "10.0.0.1/32", "autoscalerFrom": []}
    },
    "episodes-in-pods": {
        "config": {
            "tasks": {
                "environments": [
                    {
                        "kind": "tools",
                        "name": "box",
                        "tools": ["shell"],
                        "profile": "container",
                        "container": {
                            "engine": "kubernetes",
                            "image": "docker.io/library/debian:12",
                            "runtime": "gvisor",
                        },
                    },
                    {
                        "kind": "tools",
                        "name": "far-box",
                        "tools": ["python"],
                        "profile": "container",
                        "container": {
                            "engine": "kubernetes",
                            "namespace": "episodes",
                            "image": "docker.io/library/python:3.11",
                        },
                    },
                ]
            }
        }
    },
    "agents-elsewhere": {
        "auth": {"http": True},
        "networkPolicy": {
            "generatorFrom": [
                {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "agents"}}}
            ]
        },
    },
    "shared-model-volume": {"model": {"volume": {"kind": "pvc", "storageClass": "fast"}}},
    "model-of-mine": {
        "config": {"model": {"path": "/models/mine"}},
        "model": {"source": "folder", "volume": {"kind": "pvc", "existingClaim": "models"}},
    },
    "model-from-the-hub-with-token": {
        "config": {"model": {"path": "org/model"}},
        "model": {"source": "hub", "revision": "refs/pr/1", "tokenSecret": "hub"},
    },
    "tests-from-the-hub": {
        "config": {
            "tasks": {
                "downstream": [
                    {"dataset": {"kind": "huggingface", "name": "exam", "path": "org/exam"}}
                ]
            },
        }
    },
    "openshift": {"podSecurity": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}},
    "ipv6": {"networking": {"bind": "::", "interface": "eth0"}},
    "digests-and-mirror": {
        "global": {"imageRegistry": "mirror.example.com:5000"},
        "generator": {"image": {"digest": _DIGEST}},
        "trainer": {"image": {"digest": _DIGEST}},
        "forecaster": {"image": {"digest": _DIGEST}},
        "redis": {"image": {"digest": _DIGEST}},
        "imagePullSecrets": [{"name": "mirror"}],
    },
    "additions-in-every-role": dict.fromkeys(_ROLES, _ADDED)
    | {"autoscaler": _ADDED | {"mode": "controller"}, "grader": _ADDED | {"enabled": True}},
    "names": {
        "fullnameOverride": "a-name-that-is-as-long-as-anybody-would-want-it",
        "nameOverride": "other",
    },
    "priorities-and-no-budgets": {
        "priorityClasses": {"create": True, "preemptionPolicy": "PreemptLowerPriority"},
        "generator": {"podDisruptionBudget": {"enabled": False}, "packing": False},
        "trainer": {"podDisruptionBudget": {"enabled": False}},
    },
    "storage": {"storage": {"existingClaim": "runs"}},
    "nothing-generates": {"generator": {"replicas": 0}},
    "further-objects": {
        "extraObjects": [
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "{{ .Release.Name }}-more"},
                "data": {"a": "b"},
            },
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-text\n",
        ]
    },
    "as-a-subchart": {"enabled": True, "global": {"storageClass": "x", "imageRegistry": "mirror"}},
    "stop-when": {
        "config": {"stop_when": {"least_gain": 0.02}, "budget": {"steps": None, "device_hours": 1}}
    },
    "graders-in-gvisor": {
        "grader": {"enabled": True, "replicas": 3},
        "auth": {"http": True},
        "monitoring": {"enabled": True},
    },
    "graders-on-the-nodes-kernel": {
        "grader": {
            "enabled": True,
            "runtimeClassName": "",
            "podDisruptionBudget": {"enabled": False},
        },
        "config": {
            "tasks": {"grading": {"sandbox": "remote", "deadline_seconds": 20}},
            "http": {"tls": _PEM},
        },
        "monitoring": {"enabled": True},
    },
    "graders-in-another-runtime": {
        "grader": {"enabled": True, "runtimeClassName": "kata"},
        "config": {"grader": {"sandbox": "strict", "processes": 2}},
    },
    "a-grader-elsewhere": {
        "grader": {
            "external": {"host": "grader.example.com", "port": 7433, "tokenSecret": "grader"}
        },
        "networkPolicy": {"allowHub": False},
    },
    "queues-and-claims-of-a-platform": {
        "commonLabels": {"cost-center": "42"},
        "serviceAccount": {"name": "mine"},
        "trainer": {
            "labels": {"kueue.x-k8s.io/queue-name": "research"},
            "annotations": {"team": "rl"},
            "suspend": True,
        },
    },
    "environments": {
        "environments": [
            {"name": "echo", "image": {"repository": "team/echo-env", "tag": "1.2"}},
            {
                "name": "files",
                "image": {
                    "registry": "registry.example.com",
                    "repository": "team/files-mcp",
                    "digest": _DIGEST,
                },
                "command": ["serve-files"],
                "args": ["--root", "/data"],
                "port": 9000,
                "replicas": 2,
                "scaling": {"maxReplicas": 8, "cpuPercent": 50},
                "sticky": True,
                "readinessPath": "/health",
                "egress": [
                    {"to": [{"ipBlock": {"cidr": "10.7.0.0/16"}}], "ports": [{"port": 443}]}
                ],
                "podDisruptionBudget": {"enabled": False},
                "resources": {"requests": {"cpu": 2}, "limits": {"memory": "4Gi"}},
                **{field: value for field, value in _ADDED.items() if field != "extraContainers"},
                "extraVolumeMounts": [{"name": "more", "mountPath": "/data"}],
                "runtimeClassName": "gvisor",
            },
        ],
        "generator": {"extraEnv": [{"name": "FILES_TOKEN", "value": "t0p"}]},
        "config": {
            "tasks": {
                "environments": [
                    {
                        "kind": "openenv",
                        "name": "echo",
                        "url": "http://demo-rollcast-env-echo:8000",
                        "interpreter": "/opt/openenv/bin/python",
                    },
                    {
                        "kind": "tools",
                        "name": "files",
                        "mcp": [
                            {
                                "name": "files",
                                "url": "http://demo-rollcast-env-files:9000/mcp",
                                "token_variable": "FILES_TOKEN",
                            },
                            {"name": "elsewhere", "url": "https://mcp.example.com:8443/mcp"},
                        ],
                    },
                ]
            }
        },
    },
    "small-numbers": {"config": {"recipe": {"optimizer": {"learning_rate": 5e-7}}}},
}
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{name: profile(name) for name in PROFILES},
    **{name: merged(CPU, change) for name, change in CHANGES.items()},
    "data-from-the-hub-with-token": {
        "config": {
            "tasks": {
                "dataset": {
                    "kind": "mixture",
                    "parts": [
                        {"dataset": {"kind": "arithmetic"}},
                        {"dataset": {"kind": "huggingface", "name": "words", "path": "org/words"}},
                    ],
                }
            }
        },
        "model": {"source": "arithmetic", "tokenSecret": "hub"},
    },
    "rdma": merged(
        profile("scalerl-8b"), {"networking": {"rdma": {"enabled": True}, "interface": "ib0"}}
    ),
    "rdma-as-root": merged(
        profile("scalerl-8b"), {"networking": {"rdma": {"enabled": True, "root": True}}}
    ),
    "8xh100-by-claims": merged(
        profile("8xh100"),
        {
            "gpu": {"resource": ""},
            "trainer": {"resourceClaims": _CLAIMS},
            "generator": {"resourceClaims": _CLAIMS},
        },
    ),
    "moe-on-the-nodes-network": merged(
        profile("moe"), {"gpu": {"resource": "amd.com/gpu"}, "trainer": {"hostNetwork": True}}
    ),
    "two-nodes-as-a-job": merged(profile("scalerl-8b"), {"trainer": {"controller": "job"}}),
    "8xh100-on-node-folders": merged(
        profile("8xh100"),
        {"model": {"volume": {"kind": "hostPath", "hostPath": "/var/lib/models"}}},
    ),
    "8xh100-swept": merged(
        profile("8xh100"),
        {
            "sweep": {"serviceAccount": "rates-sweep", "generators": 6},
            "trainer": {"suspend": True, "labels": {"kueue.x-k8s.io/queue-name": "research"}},
            "generator": {"replicas": 0},
        },
    ),
    "8xh100-scaled": merged(profile("8xh100"), {"autoscaler": {"mode": "keda", "maxReplicas": 4}}),
}
FROM_THE_HUB = ("data-from-the-hub-with-token", "tests-from-the-hub")
"""Whose trainer reads a data set of the hub, while no model comes from there."""
NOT_RESTRICTED = ("rdma-as-root", "8xh100-on-node-folders", "moe-on-the-nodes-network")
"""What Pod Security "restricted" refuses, two of them "baseline" too, and the notes say so."""
FOR_NEW_CLUSTERS = ("8xh100-by-claims",)
"""What Kubernetes before 1.31 writes in another way, in an API that was not stable yet."""
WITH_TRAINER = [name for name, values in VALUE_SETS.items() if "generatorsOnly" not in values]
"""Names of those whose release has a trainer."""
