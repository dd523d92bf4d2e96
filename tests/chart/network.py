"""What NetworkPolicies admit, as Kubernetes defines it: a connection both of whose ends let it
pass.

A pod that no policy selects for a direction is open in it; else any rule of any policy that selects
it is enough (kubernetes.io, "Network Policies"). Only what the chart uses is known here: labels
that must be equal, blocks of addresses, ports by name or number.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.chart.rendering import NAMESPACE, Object, of_kind, pods


@dataclass(frozen=True)
class Place:
    """An end of a connection.

    Attributes: its name here; namespace, None = outside of the cluster; ports by name.
    """

    name: str
    namespace: str | None = NAMESPACE
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    address: str = "10.0.0.1"


NEIGHBOUR = Place("any pod of the namespace")
STRANGER = Place("any other pod", "elsewhere")
PROMETHEUS = Place("Prometheus", "monitoring", ports={"web": 9090})
KEDA = Place("KEDA", "keda")
DNS = Place("DNS", "kube-system", ports={"dns": 53})
OUTSIDE = Place("anywhere", None, address="203.0.113.7")


class Network:
    """The policies of rendered objects."""

    def __init__(self, objects: list[Object]) -> None:
        self._policies = of_kind(objects, "NetworkPolicy")
        self.numbers = {
            entry["port"]
            for policy in self._policies
            for way in ("ingress", "egress")
            for rule in policy["spec"].get(way, [])
            for entry in rule.get("ports", [])
            if isinstance(entry["port"], int)
        }
        """Ports that any rule names by number."""
        self.roles = {
            pod.role: self._place(pod.role, pod.metadata["labels"], pod.containers)
            for pod in pods(objects)
            if pod.role != "image-pull"  # it does nothing, before there is a policy
        }

    def admits(self, source: Place, target: Place, port: int, protocol: str = "TCP") -> bool:
        """Whether a connection from one to a port of the other passes."""
        return self._passes("egress", source, target, target, port, protocol) and self._passes(
            "ingress", target, source, target, port, protocol
        )

    def _passes(
        self, way: str, end: Place, peer: Place, target: Place, port: int, protocol: str
    ) -> bool:
        selecting = [
            policy["spec"]
            for policy in self._policies
            if way.capitalize() in policy["spec"]["policyTypes"]
            and policy["metadata"]["namespace"] == end.namespace
            and _selects(policy["spec"]["podSelector"], end.labels)
        ]
        if not selecting:
            return True
        side = {"egress": "to", "ingress": "from"}[way]
        return any(
            _has_peer(rule.get(side), peer, str(end.namespace))
            and _has_port(rule.get("ports"), target, port, protocol)
            for spec in selecting
            for rule in spec.get(way, [])
        )

    @staticmethod
    def _place(role: str, labels: Mapping[str, str], containers: list[Object]) -> Place:
        ports = {
            port["name"]: port["containerPort"]
            for container in containers
            for port in container.get("ports", [])
        }
        return Place(role, labels=labels, ports=ports)


def _selects(selector: Object, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "unknown here"
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _has_peer(peers: list[Object] | None, place: Place, namespace: str) -> bool:
    """No peers = everybody."""
    return not peers or any(_is_peer(peer, place, namespace) for peer in peers)


def _is_peer(peer: Object, place: Place, namespace: str) -> bool:
    if "ipBlock" in peer:
        assert set(peer["ipBlock"]) == {"cidr"}, "unknown here"
        return ipaddress.ip_address(place.address) in ipaddress.ip_network(peer["ipBlock"]["cidr"])
    if place.namespace is None:
        return False
    where = {"kubernetes.io/metadata.name": place.namespace}
    known = (
        _selects(peer["namespaceSelector"], where)
        if "namespaceSelector" in peer
        else place.namespace == namespace
    )
    return known and _selects(peer.get("podSelector", {}), place.labels)


def _has_port(ports: list[Object] | None, target: Place, port: int, protocol: str) -> bool:
    """No ports = all of them; a name is that of the target's own port."""
    if not ports:
        return True
    return any(
        protocol == entry.get("protocol", "TCP")
        and port == target.ports.get(entry["port"], entry["port"])
        for entry in ports
    )
