"""The authorities that a program trusts: the user's own, and that of the generator's server."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcast.environments.harness.trust import trusting


def test_authorities_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "own.pem"
    own.write_text("the user's")
    authority = tmp_path / "ca.pem"
    authority.write_text("ours")
    monkeypatch.setenv("SSL_CERT_FILE", str(own))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(tmp_path / "gone.pem"))
    found = {name: Path(file).read_text() for name, file in trusting(authority, tmp_path).items()}
    assert found["SSL_CERT_FILE"] == "the user's\nours"
    assert found["REQUESTS_CA_BUNDLE"] == found["NODE_EXTRA_CA_CERTS"]
    assert found["REQUESTS_CA_BUNDLE"].endswith("\nours")
