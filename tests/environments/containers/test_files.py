"""Files of a container and its end, with each engine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from rollcast.config.environments.container import ContainerSettings
from rollcast.environments.containers.engines import find_engine
from rollcast.environments.containers.errors import ContainerError, SpoiledError
from rollcast.environments.containers.pool import ContainerPool
from testkit.containers import IMAGE, START_SECONDS
from tests.environments.engines_under_test import EngineUnderTest


def make_pool(engine: EngineUnderTest) -> ContainerPool:
    settings = ContainerSettings.model_validate(engine.settings)
    return ContainerPool(find_engine(settings, "box"), settings, START_SECONDS)


async def test_files_go_in_and_come_out(engine: EngineUnderTest, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "text").write_text("content")
    (tmp_path / "deep" / "large").write_bytes(b"0123456789abcdef" * (1 << 16))
    (tmp_path / "link").symlink_to("deep/text")
    pool = make_pool(engine)
    try:
        container, other = await pool.acquire(), await pool.acquire()
        await container.put(tmp_path, "/made/here")
        assert await container.read("/made/here/link", 100) == b"content"
        assert await container.read("/made/there", 100) is None
        with pytest.raises(SpoiledError, match="no file of at most 3 bytes"):
            await container.read("/made/here/link", 3)
        with pytest.raises(SpoiledError, match="no file of at most"):
            await container.read("/made/here", 100)
        await container.copy_to(other, "/made")
        assert await other.read("/made/here/deep/text", 100) == b"content"
        large = await other.read("/made/here/deep/large", 1 << 21)
        assert large == (tmp_path / "deep" / "large").read_bytes()
        await container.copy_to(other, "/nowhere")
        await container.run(["/bin/sh", "-c", "busybox ln -s /bin /made/here/deep/elsewhere"], 10)
        await container.copy_to(other, "/made")
        (tmp_path / "deep" / "large").unlink()
        await container.put(tmp_path, "/made/here")
        assert await container.read("/made/here/deep/large", 1 << 21) is None, "the former is gone"
        await container.end()
        with pytest.raises(ContainerError, match=r"has ended|deleted"):
            await container.run(["/bin/sh", "-c", ":"], 10)
    finally:
        await pool.close()


async def test_a_program_of_the_container_cannot_have_a_wrong_file_read(
    engine: EngineUnderTest, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("of the machine")
    pool = make_pool(engine)
    try:
        container = await pool.acquire()
        links = f"busybox ln -s {tmp_path}/secret /tmp/secret; busybox ln -s /etc /tmp/etc"
        await container.run(["/bin/sh", "-c", f"{links}; rm /bin/cat; mkdir /tmp/folder"], 10)
        for name in ("secret", "etc", "folder", "../dev/zero"):
            with contextlib.suppress(SpoiledError):
                assert await container.read(f"/tmp/{name}", 100) is None
    finally:
        await pool.close()


async def test_variables_and_a_folder_reach_a_command_and_its_code_comes_back(
    engine: EngineUnderTest,
) -> None:
    settings = ContainerSettings.model_validate(engine.settings)
    pool = ContainerPool(find_engine(settings, "box"), settings, START_SECONDS)
    try:
        container = await pool.acquire(IMAGE, {"PLACE": "Rome and = more $$ $(PLACE)"})
        output = await container.run(
            ["/bin/sh", "-c", 'echo "$PLACE, $OTHER"; busybox pwd; echo wrong >&2; exit 7'],
            10,
            variables={"OTHER": "b 'c'"},
            folder="/tmp",
        )
        assert (output.text, output.code) == ("Rome and = more $$ $(PLACE), b 'c'\n/tmp\nwrong", 7)
        output = await container.run(["/bin/sh", "-c", "yes | head -c 3000000; kill -9 $$"], 20)
        assert output.code == 137
        assert len(output.content) == 1 << 20
        assert output.num_dropped == 3_000_000 - (1 << 20)
        absent = await container.run(["/not/there"], 10)
        assert absent.code in (126, 127)
    finally:
        await pool.close()
