"""Licences of the pinned packages that are installed here, by their own metadata."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
ALLOWED = re.compile(
    r"0BSD|Apache|Boost|BSD|BSL-1\.0|CC0|CNRI|DFSG approved|ISC|LLVM|MIT|Mozilla|MPL|PSF"
    r"|Python Software Foundation|Unlicense"
)
"""Licences that ask for no more than their text, or, with MPL, for changes of its own files."""
EXCEPTIONS = {
    "intel-cmplr-lib-ur": "proprietary, may be passed on; the CPU build of vLLM needs it",
    "intel-openmp": "proprietary, may be passed on; the CPU build of vLLM needs it",
    "oss-harmony": "Apache-2.0; its metadata names none; of vLLM",
    "prime-pydantic-config": "Apache-2.0; its metadata names none; of verifiers",
    "prometheus-fastapi-instrumentator": "ISC; its metadata says OSI Approved alone; of vLLM",
    "pycountry": "LGPL-2.1, imported unchanged; vLLM needs it",
    "pyte": "LGPL-3.0, imported unchanged; only tests do",
    "setuptools": "MIT; its metadata names none",
}


def pinned_packages() -> set[str]:
    lines = [
        line
        for file in (ROOT / "requirements").glob("*.txt")
        for line in file.read_text().splitlines()
    ]
    return {
        found[0].lower() for line in lines if (found := re.match(r"[\w.-]+(?=(\[.*\])?==)", line))
    }


def licence(package: str) -> str:
    found = metadata(package)
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in found.get_all("Classifier", [])
        if text.startswith("License")
    ]
    (expression, text) = (
        "".join(found.get_all(field, [])) for field in ("License-Expression", "License")
    )
    return expression or "; ".join(classifiers) or "".join(text.strip().splitlines()[:1])


def test_every_installed_package_has_a_licence_of_the_list() -> None:
    licences = {}
    for package in pinned_packages():
        try:
            licences[package] = licence(package)
        except PackageNotFoundError:  # of another device, or of what is installed for one proof
            continue
    assert len(licences) > 50
    others = {name: text for name, text in licences.items() if not is_allowed(text)}
    assert {name: text for name, text in others.items() if name not in EXCEPTIONS} == {}


def is_allowed(text: str) -> bool:
    """Each part that is needed (AND) has an alternative (OR) of the list, and none is a GPL."""
    parts = re.split(r" AND |;", text)
    return all(
        any(ALLOWED.search(choice) and "GPL" not in choice for choice in part.split(" OR "))
        for part in parts
    )


def test_what_is_not_of_the_list_is_seen() -> None:
    assert is_allowed("Apache-2.0 AND (MIT OR GPL-2.0)")
    for text in ("GPL-3.0-only", "MIT AND LGPL-2.1", "Other/Proprietary License", ""):
        assert not is_allowed(text)
