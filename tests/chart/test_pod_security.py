"""Every rule of the Pod Security standard "restricted", which holds those of "baseline", on every
pod that is rendered.

Source: kubernetes.io/docs/concepts/security/pod-security-standards. Each rule is a function of a
pod's spec and returns what breaks it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chart.rendering import Object, PodOf, notes, pod_of, pods, render
from tests.chart.value_sets import NOT_RESTRICTED, VALUE_SETS

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
SYSCTLS = {
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
}  # fmt: skip
SELINUX_TYPES = {
    None,
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
}


def containers(spec: Object) -> Iterator[Object]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind, [])


def contexts(spec: Object) -> Iterator[tuple[str, Object]]:
    yield "pod", spec.get("securityContext", {})
    for container in containers(spec):
        yield container["name"], container.get("securityContext", {})


def host_process(spec: Object) -> list[Any]:
    return [
        name
        for name, context in contexts(spec)
        if context.get("windowsOptions", {}).get("hostProcess")
    ]


def host_namespaces(spec: Object) -> list[Any]:
    return [field for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]


def privileged(spec: Object) -> list[Any]:
    return [name for name, context in contexts(spec) if context.get("privileged")]


def capabilities_added(spec: Object) -> list[Any]:
    found = []
    for name, context in contexts(spec):
        if set(context.get("capabilities", {}).get("add", [])) - {"NET_BIND_SERVICE"}:
            found.append(name)
    return found


def capabilities_dropped(spec: Object) -> list[Any]:
    return [
        container["name"]
        for container in containers(spec)
        if "ALL" not in container.get("securityContext", {}).get("capabilities", {}).get("drop", [])
    ]


def host_path(spec: Object) -> list[Any]:
    return [volume["name"] for volume in spec.get("volumes", []) if "hostPath" in volume]


def volume_types(spec: Object) -> list[Any]:
    return [
        volume
        for volume in spec.get("volumes", [])
        if len(set(volume) - {"name"}) != 1 or not set(volume) & VOLUMES
    ]


def host_ports(spec: Object) -> list[Any]:
    return [
        port
        for container in containers(spec)
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]


def probes_of_other_hosts(spec: Object) -> list[Any]:
    found = []
    for container in containers(spec):
        handlers = [
            container.get(probe, {})
            for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        ]
        handlers += container.get("lifecycle", {}).values()
        found += [
            handler
            for handler in handlers
            if any(handler.get(how, {}).get("host") for how in ("httpGet", "tcpSocket"))
        ]
    return found


def apparmor(spec: Object) -> list[Any]:
    profiles = [
        context.get("appArmorProfile", {}).get("type", "RuntimeDefault")
        for _, context in contexts(spec)
    ]
    return [profile for profile in profiles if profile not in ("RuntimeDefault", "Localhost")]


def selinux(spec: Object) -> list[Any]:
    options = [context.get("seLinuxOptions", {}) for _, context in contexts(spec)]
    return [
        o for o in options if o.get("type") not in SELINUX_TYPES or o.get("user") or o.get("role")
    ]


def proc_mount(spec: Object) -> list[Any]:
    return [
        name for name, context in contexts(spec) if context.get("procMount", "Default") != "Default"
    ]


def sysctls(spec: Object) -> list[Any]:
    return [
        s for s in spec.get("securityContext", {}).get("sysctls", []) if s["name"] not in SYSCTLS
    ]


def privilege_escalation(spec: Object) -> list[Any]:
    return [
        container["name"]
        for container in containers(spec)
        if container.get("securityContext", {}).get("allowPrivilegeEscalation") is not False
    ]


def non_root(spec: Object) -> list[Any]:
    of_pod = spec.get("securityContext", {}).get("runAsNonRoot")
    return [
        container["name"]
        for container in containers(spec)
        if container.get("securityContext", {}).get("runAsNonRoot", of_pod) is not True
    ]


def root_user(spec: Object) -> list[Any]:
    return [name for name, context in contexts(spec) if context.get("runAsUser") == 0]


def seccomp(spec: Object) -> list[Any]:
    of_pod = spec.get("securityContext", {}).get("seccompProfile", {}).get("type")
    return [
        container["name"]
        for container in containers(spec)
        if container.get("securityContext", {}).get("seccompProfile", {}).get("type", of_pod)
        not in ("RuntimeDefault", "Localhost")
    ]


RULES: list[Callable[[Object], list[Any]]] = [host_process, host_namespaces, privileged,
    capabilities_added, capabilities_dropped, host_path, volume_types, host_ports,
    probes_of_other_hosts, apparmor, selinux, proc_mount, sysctls, privilege_escalation, non_root,
    root_user, seccomp]  # fmt: skip


@pytest.fixture(scope="module")
def restricted() -> list[tuple[str, PodOf]]:
    """Each pod with the name of its value set."""
    sets = {name: values for name, values in VALUE_SETS.items() if name not in NOT_RESTRICTED}
    return [(name, pod) for name, values in sets.items() for pod in pods(render(values))]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_pod_keeps_the_rule(
    rule: Callable[[Object], list[Any]], restricted: list[tuple[str, PodOf]]
) -> None:
    broken = {f"{name}: {pod.name}": found for name, pod in restricted if (found := rule(pod.spec))}
    assert broken == {}


def test_what_restricted_refuses_is_what_the_notes_warn_of() -> None:
    for name in NOT_RESTRICTED:
        rules = {
            rule.__name__
            for pod in pods(render(VALUE_SETS[name]))
            for rule in RULES
            if rule(pod.spec)
        }
        as_root = {"capabilities_added", "non_root", "root_user"}
        assert rules in (as_root, {"host_path", "volume_types"}, {"host_namespaces"})
        level = "baseline" if rules == {"host_namespaces"} else "restricted"
        assert f'Pod Security "{level}" refuses' in notes(VALUE_SETS[name])


BREAKS: dict[str, Callable[[Object], Any]] = {
    "host_process": lambda spec: spec["securityContext"].update(
        windowsOptions={"hostProcess": True}
    ),
    "host_namespaces": lambda spec: spec.update(hostIPC=True),
    "privileged": lambda spec: spec["containers"][0]["securityContext"].update(privileged=True),
    "capabilities_added": lambda spec: spec["containers"][0]["securityContext"][
        "capabilities"
    ].update(add=["SYS_PTRACE"]),
    "capabilities_dropped": lambda spec: spec["containers"][0]["securityContext"].pop(
        "capabilities"
    ),
    "host_path": lambda spec: spec["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
    "volume_types": lambda spec: spec["volumes"].append({"name": "x", "nfs": {}}),
    "host_ports": lambda spec: spec["containers"][0]["ports"][0].update(hostPort=80),
    "probes_of_other_hosts": lambda spec: spec["containers"][0]["livenessProbe"].update(
        httpGet={"host": "x"}
    ),
    "apparmor": lambda spec: spec["securityContext"].update(appArmorProfile={"type": "Unconfined"}),
    "selinux": lambda spec: spec["securityContext"].update(seLinuxOptions={"user": "root"}),
    "proc_mount": lambda spec: spec["containers"][0]["securityContext"].update(
        procMount="Unmasked"
    ),
    "sysctls": lambda spec: spec["securityContext"].update(
        sysctls=[{"name": "kernel.msgmax", "value": "1"}]
    ),
    "privilege_escalation": lambda spec: spec["containers"][0]["securityContext"].pop(
        "allowPrivilegeEscalation"
    ),
    "non_root": lambda spec: spec["securityContext"].pop("runAsNonRoot"),
    "root_user": lambda spec: spec["securityContext"].update(runAsUser=0),
    "seccomp": lambda spec: spec["securityContext"].pop("seccompProfile"),
}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_rule_finds_a_pod_that_breaks_it(rule: Callable[[Object], list[Any]]) -> None:
    spec = copy.deepcopy(pod_of(render({}), "generator").spec)
    assert not rule(spec)
    BREAKS[rule.__name__](spec)
    assert rule(spec)


def test_only_what_asks_the_api_server_has_a_token() -> None:
    for name, values in VALUE_SETS.items():
        for pod in pods(render(values)):
            token = pod.role in (
                "autoscaler",
                "image-watch",
                "dry-run",
                "left-trainers",
                "uninstall",
            )
            assert pod.spec.get("automountServiceAccountToken") is token, (name, pod.name)
            projected = [
                source
                for volume in pod.spec["volumes"]
                for source in volume.get("projected", {}).get("sources", [])
            ]
            makes_pods = pod.role == "generator" and name == "episodes-in-pods"
            assert any("serviceAccountToken" in source for source in projected) is makes_pods
        for account in (item for item in render(values) if item["kind"] == "ServiceAccount"):
            assert account["automountServiceAccountToken"] is False


def test_roots_are_read_only_and_what_is_written_to_is_mounted() -> None:
    for name, values in VALUE_SETS.items():
        for pod in pods(render(values)):
            for container in pod.containers:
                assert container["securityContext"]["readOnlyRootFilesystem"] is True, (
                    name,
                    pod.name,
                )
                paths = {mount["mountPath"] for mount in container.get("volumeMounts", [])}
                if container["name"] != "exporter":
                    assert "/tmp" in paths, (name, pod.name)
                environment = {
                    entry["name"]: entry.get("value", "") for entry in container.get("env", [])
                }
                for variable in (
                    "HOME",
                    "TMPDIR",
                    "HF_HOME",
                    "TORCHINDUCTOR_CACHE_DIR",
                    "TRITON_CACHE_DIR",
                ):
                    folder = environment.get(variable)
                    assert folder is None or any(
                        folder == p or folder.startswith(f"{p}/") for p in paths
                    ), (
                        pod.name,
                        variable,
                    )
                mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
                claims = pod.owner["spec"].get("volumeClaimTemplates", [])
                there = {volume["name"] for volume in pod.spec["volumes"]} | {
                    c["metadata"]["name"] for c in claims
                }
                assert mounted <= there
