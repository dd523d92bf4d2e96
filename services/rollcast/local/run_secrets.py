"""Random secrets of one start of a run: the password of its embedded Redis, the tokens of its trainer and its grader.

They are kept in run.json of the run folder, which only the user can read, and from there every command takes them.
"""

import secrets

from pydantic import SecretStr

from rollcast.config.run import RunConfig
from rollcast.config.services import Grader, Redis, Rpc
from rollcast.local.embedded_redis import listening
from rollcast.runfolder import files

SECRET_BYTES = 32
"""Entropy of a secret: 256 bits."""


def with_secrets(config: RunConfig, *, embed_redis: bool, embed_grader: bool) -> RunConfig:
    """`config` with a random secret for each service of the run whose secret the user has not set.

    The embedded Redis also gets its socket. A Redis or a grader that the user runs keeps what the user has set.
    """
    updates: dict[str, Redis | Rpc | Grader] = {
        "rpc": config.rpc.model_copy(update={"token": config.rpc.token or _random()})
    }
    if embed_redis:
        redis = config.redis.model_copy(update={"password": config.redis.password or _random()})
        updates["redis"] = listening(redis, config.run_folder / files.REDIS)
    if embed_grader:
        updates["grader"] = config.grader.model_copy(update={"token": config.grader.token or _random()})
    return config.model_copy(update=updates)


def _random() -> SecretStr:
    return SecretStr(secrets.token_urlsafe(SECRET_BYTES))
