"""The functions that answer one chat request of a second turn: `python -m lab.request_walk
[--json]`.

A stop is a function of the package, counted when it is entered for the first time, in any thread. A
room is a file. A return is a stop in a file that the walk had left before. The walk begins at the
route of the endpoint and ends when the client has the answer. The engine is scripted: none of its
functions is a stop. Functions that look at deadlines every quarter of a second may be entered by
chance, so the shortest of some walks counts.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import httpx

import rollcast
from rollcast.generator.endpoint.application import EndpointApplication
from rollcast.rollouts.records import LengthBudget
from rollcast.wire.version import PolicyVersion
from testkit.generator.episode_tasks import episode_task
from testkit.generator.harness_endpoint import MODEL, claim_next_session, served_endpoint
from testkit.generator.scripted_engine import ScriptedEngine

HOME = Path(str(rollcast.__file__)).parent
TOKENS_A_TURN = 1
NUM_WALKS = 10


class RequestWalk:
    """The stops of one request, in the order in which they are entered."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, str]] = []
        """File, relative to the package, and qualified name of each function."""
        self._seen: set[CodeType] = set()
        self._is_awaited = False
        self._is_under_way = False

    def start(self) -> None:
        """The next request is the one."""
        self._is_awaited = True

    def stop(self) -> None:
        self._is_awaited = False
        self._is_under_way = False

    def profile(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls."""
        if event != "call" or not self._is_awaited:
            return
        code = frame.f_code
        if code.co_qualname.startswith(f"{EndpointApplication.__name__}._in_session"):
            self._is_under_way = True
        path = Path(code.co_filename)
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith(
            "<"
        )
        if self._is_under_way and is_function and code not in self._seen and HOME in path.parents:
            self._seen.add(code)
            self.stops.append((path.relative_to(HOME).as_posix(), code.co_qualname))


def figures(stops: list[tuple[str, str]]) -> dict[str, int]:
    """Stops, rooms and returns of a walk."""
    rooms: set[str] = set()
    num_returns = 0
    here = ""
    for room, _ in stops:
        if room != here and room in rooms:
            num_returns += 1
        rooms.add(room)
        here = room
    return {"stops": len(stops), "rooms": len(rooms), "returns": num_returns}


async def walk() -> list[tuple[str, str]]:
    """The stops of the second request of an episode."""
    request_walk = RequestWalk()
    engine: Any = ScriptedEngine(lambda request: len(request.token_ids) + TOKENS_A_TURN)
    await engine.apply(PolicyVersion(1, 1))
    threading.setprofile(request_walk.profile)
    sys.setprofile(request_walk.profile)
    try:
        async with served_endpoint(engine, {"restarts": 0}, calls=lambda tokens: 0) as endpoint:
            sampler = endpoint.sampler(episode_task(1, 1, LengthBudget(max_tokens=100)))
            running = asyncio.create_task(sampler.run())
            session = await claim_next_session(endpoint)
            session.note_reward(1.0)
            described = endpoint.sessions.describe_session(session, endpoint.sessions.url)
            headers = {"authorization": f"Bearer {described['token']}"}
            messages: list[Any] = [{"role": "user", "content": "go on"}]
            async with httpx.AsyncClient(
                base_url=described["base_url"], headers=headers, timeout=60.0
            ) as client:
                for turn in range(2):
                    if turn == 1:
                        request_walk.start()
                    body = {"model": MODEL, "messages": messages}
                    asked = asyncio.create_task(client.post("chat/completions", json=body))
                    while not asked.done():
                        await engine.advance(1)
                    request_walk.stop()
                    answer = asked.result().raise_for_status().json()["choices"][0]["message"]
                    messages += [answer, {"role": "user", "content": "go on"}]
            session.note_end("")
            await asyncio.wait_for(running, 60.0)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return request_walk.stops


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    is_json = parser.parse_args().json
    stops = min((asyncio.run(walk()) for _ in range(NUM_WALKS)), key=len)
    answer = figures(stops)
    if is_json:
        print(json.dumps({**answer, "walk": [f"{room} {name}" for room, name in stops]}, indent=1))
        return
    for room, name in stops:
        print(room, name)
    for name, count in answer.items():
        print(f"{name}: {count}")


if __name__ == "__main__":
    main()
