"""Two runs of one name on one Redis, each under a scope of its own, never meet."""

from __future__ import annotations

from rollcast.rollouts.redis_trainer_queue import RedisTrainerQueue
from testkit.rollouts.servers import Server


def test_runs_of_one_name_in_two_namespaces_share_nothing(
    redis_server: Server, run_name: str
) -> None:
    scopes = ("", "team-a/b", "team/a-b")
    queues = {
        scope: RedisTrainerQueue(
            redis_server.settings.model_copy(update={"scope": scope}), run_name
        )
        for scope in scopes
    }
    for number, queue in enumerate(queues.values(), start=1):
        assert queue.start_incarnation(number) == number, "nobody counts for another"
        queue.set_state("place", str(number).encode())
    assert [queue.get_state("place") for queue in queues.values()] == [b"1", b"2", b"3"]
    with redis_server.client() as raw:
        keys = {key.decode() for key in raw.keys(f"rollcast:{{*{run_name}}}:*")}
    assert {key.partition("{")[2].partition("}")[0] for key in keys} == {
        run_name,
        f"team-a/b/{run_name}",
        f"team/a-b/{run_name}",
    }
