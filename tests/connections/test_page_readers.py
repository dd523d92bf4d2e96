"""Who has read a page, asked of a real server by real clients."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
from hypothesis import given
from hypothesis import strategies as st

from rollcast.config.connections import Http
from rollcast.connections.http import (
    MAX_READERS,
    ONE_LOOK,
    REGULAR_SECONDS,
    HttpServer,
    PageReaders,
    client,
    listen,
    service_routes,
)
from rollcast.telemetry.exporter import Exporter


@contextmanager
def serving(readers: PageReaders, render: Callable[[], bytes]) -> Iterator[str]:
    routes = service_routes(render, lambda: (True, "ok"), readers=readers)
    server = HttpServer(routes, listen("127.0.0.1", 0, setting="port"), Http())
    server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.stop()


def soon(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_a_page_is_read_once_everybody_who_reads_it_has_come_again() -> None:
    readers = PageReaders()
    scrape = (
        "import sys, httpx; from rollcast.connections.http import client; client().get(sys.argv[1])"
    )
    with serving(readers, Exporter("r").render) as address, client() as ours:
        page = f"{address}/metrics"
        assert not readers.have_read_since(time.monotonic()), "nobody has read it"
        before = time.monotonic()
        ours.get(page)
        httpx.get(page, headers={"user-agent": "Prometheus/3.5.0"})
        assert soon(lambda: readers.have_read_since(before))

        ended = time.monotonic()
        for probe in ("/healthz", "/readyz", "/nothing"):
            ours.get(f"{address}{probe}")
        ours.get(page)
        ours.get(page)
        assert not soon(lambda: readers.have_read_since(ended), 1.0), "Prometheus has not"
        httpx.get(page, headers={"user-agent": "Prometheus/3.5.0"})
        assert soon(lambda: readers.have_read_since(ended))

        # Another process of this machine, which is no Prometheus either, is another reader.
        subprocess.run([sys.executable, "-c", scrape, page], check=True, timeout=60)
        ended = time.monotonic()
        ours.get(page)
        httpx.get(page, headers={"user-agent": "Prometheus/3.5.0"})
        assert not soon(lambda: readers.have_read_since(ended), 1.0)


def test_a_page_that_was_made_before_is_not_the_last_one() -> None:
    """A reader that is slow to be served is given what there was when it asked."""
    readers, ended = PageReaders(), [0.0]

    def render() -> bytes:
        ended[0] = time.monotonic()  # the service ends while the page is made
        time.sleep(0.05)
        return b""

    with serving(readers, render) as address, client() as ours:
        ours.get(f"{address}/metrics")
        assert not soon(lambda: readers.have_read_since(ended[0]), 1.0)
        last = ended[0]
        ours.get(f"{address}/metrics")
        assert soon(lambda: readers.have_read_since(last))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.floats(0, 1000)), max_size=30),
    st.floats(0, 1000),
)
def test_those_who_came_lately_are_waited_for(
    visits: list[tuple[int, float]], moment: float
) -> None:
    readers = PageReaders()
    for who, at in visits:
        readers.note(str(who), at)
    last = {who: max(at for other, at in visits if other == who) for who, _ in visits}
    regular = [at for at in last.values() if at > moment - REGULAR_SECONDS]
    assert readers.have_read_since(moment) == (
        len(regular) > 0 and all(at >= moment for at in regular)
    )


def test_names_that_are_made_up_take_no_memory() -> None:
    readers = PageReaders()
    for number in range(10 * MAX_READERS):
        readers.note(f"reader {number}", float(number))
    assert len(readers._read_at) == MAX_READERS
    assert readers.have_read_since(9.0 * MAX_READERS)


def test_who_looks_once_is_not_waited_for() -> None:
    readers = PageReaders()
    readers.note("1.1.1.1 rollcast (7)", 10.0)
    readers.note(f"1.1.1.1 {ONE_LOOK} (8)", 10.0)
    readers.note("1.1.1.1 rollcast (7)", 20.0)
    assert readers.have_read_since(15.0)
