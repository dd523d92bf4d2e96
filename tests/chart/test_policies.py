"""What the policies admit, between all roles and from and to what is around: no more and no less
than is documented.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.chart.network import DNS, KEDA, NEIGHBOUR, OUTSIDE, PROMETHEUS, STRANGER, Network, Place
from tests.chart.rendering import CPU, ROOT, Object, merged, render

EPHEMERAL = 45_678
EVERYTHING = merged(
    CPU,
    {
        "autoscaler": {"mode": "keda"},
        "grader": {"enabled": True},
        "redis": {"exporter": {"enabled": True}},
        "environments": [{"name": "name", "image": {"repository": "team/environment", "tag": "1"}}],
    },
)
BEYOND = {
    "model": {"source": "hub"},
    "config": {
        "model": {"path": "org/model"},
        "autoscaler": {
            "source": {"kind": "prometheus", "url": "http://prometheus.monitoring:9090"}
        },
        "forecaster": {
            "source": {"kind": "prometheus", "url": "http://prometheus.monitoring:9090"}
        },
    },
}
AROUND = (NEIGHBOUR, STRANGER, PROMETHEUS, KEDA)


def admitted(network: Network, source: Place, target: Place) -> str:
    """Names of ports, or `all`; empty = none."""
    if network.admits(source, target, EPHEMERAL):
        return "all"
    return ", ".join(
        sorted(name for name, port in target.ports.items() if network.admits(source, target, port))
    )


def documented(heading: str) -> dict[tuple[str, str], str]:
    """(to, from) -> ports, of a table of docs/kubernetes.md whose first row is that."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    rows = text.partition(heading)[2].partition("\n\n")[0].splitlines()[2:]
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        first, second, ports = (cell.strip() for cell in row.strip("|").split("|"))
        for a in first.split(", "):
            for b in second.split(", "):
                found[a, b] = ", ".join(
                    sorted({*ports.split(", "), *filter(None, found.get((a, b), "").split(", "))})
                )
    return found


def test_between_the_roles_and_from_around_as_much_is_let_in_as_is_documented() -> None:
    network = Network(render(EVERYTHING))
    roles = network.roles
    assert set(roles) >= {
        "trainer",
        "generator",
        "redis",
        "forecaster",
        "autoscaler",
        "grader",
        "check",
        "test",
    }
    found = {
        (target.name, source.name): ports
        for target in roles.values()
        for source in (*roles.values(), *AROUND)
        if source != target or target.name in ("trainer", "generator")
        if (ports := admitted(network, source, target))
    }
    for (target, source), ports in list(found.items()):
        if source in roles and found.get((target, NEIGHBOUR.name)) == ports:
            del found[target, source]  # a pod of the namespace like any other
    assert found == documented("| to | from | ports |")


def test_whoever_is_let_in_as_any_pod_of_the_namespace_gets_out_as_well() -> None:
    network = Network(render(EVERYTHING))
    closed = {
        role
        for role, place in network.roles.items()
        if not admitted(network, place, network.roles["forecaster"])
    }
    assert closed == {
        *(
            "check",
            "dry-run",
            "env-name",
            "grader",
            "image",
            "image-watch",
            "left-trainers",
            "redis",
            "uninstall",
        )
    }, "which speak to nobody in the release"


def test_another_release_of_the_namespace_reaches_nothing() -> None:
    """Not the forecaster either: its policy lets the caller in, the caller's own lets it out to its
    release alone.
    """
    both = [render(EVERYTHING, name=name) for name in ("demo", "other")]
    network = Network([*both[0], *both[1]])
    mine, others = (Network(objects).roles for objects in both)
    for source in others.values():
        assert not [target.name for target in mine.values() if admitted(network, source, target)], (
            source.name
        )


def test_out_of_the_release_goes_what_is_documented() -> None:
    def out(values: Object) -> dict[tuple[str, str], str]:
        network = Network(render(values))
        found: dict[tuple[str, str], list[str]] = {}
        ports = {80, EPHEMERAL, *network.numbers}
        for source in network.roles.values():
            told: set[int] = set()
            for target in (OUTSIDE, DNS, PROMETHEUS):  # any pod may be who resolves names
                opened = {port for port in ports if network.admits(source, target, port)} - told
                told |= opened
                if opened:
                    numbers = [str(port) for port in sorted(opened)]
                    found[source.name, target.name] = ["all"] if EPHEMERAL in opened else numbers
            if (source.name, DNS.name) in found:
                assert network.admits(source, DNS, 53, "UDP")
            assert not network.admits(source, KEDA, EPHEMERAL)
        return {pair: ", ".join(ports) for pair, ports in found.items()}

    least, most = out(EVERYTHING), out(merged(EVERYTHING, BEYOND))
    assert most == documented("| out of | to | ports |")
    only_then: Mapping[tuple[str, str], str] = {
        pair: ports for pair, ports in most.items() if pair not in least
    }
    assert set(only_then) == {
        ("trainer", "anywhere"),
        ("generator", "anywhere"),
        ("forecaster", "Prometheus"),
        ("autoscaler", "Prometheus"),
    }


def test_a_policy_that_is_left_out_would_be_noticed() -> None:
    """What admits is worked out from the policies, not written down."""
    closed = ("NetworkPolicy", "demo-rollcast-redis")
    network = Network(
        [item for item in render(EVERYTHING) if (item["kind"], item["metadata"]["name"]) != closed]
    )
    assert admitted(network, NEIGHBOUR, network.roles["redis"]) == "all"
