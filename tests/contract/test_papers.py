"""The papers at the root: the licence and what it allows to depend on, the citation, what runs before a commit."""

import importlib.metadata
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

SPLIT = re.compile(r"\s+OR\s+|\s*\|\s*", re.IGNORECASE)
COPYLEFT = re.compile(r"\bA?GPL|Affero|(?<!Lesser )General Public|SSPL|BUSL|Commons Clause|NonCommercial|Proprietary")
"""Licences under which a product that depends on the package cannot be Apache-2.0, or cannot be used by everybody."""

# Package -> why it may be depended on although its metadata alone does not say so.
EXCEPTIONS = {
    "pygit2": "GPL-2.0 with an exception that permits linking from a program of any licence (its COPYING)",
    "text-unidecode": "Artistic or GPL, at our choice (its LICENSE); the metadata lists both as classifiers",
    "huey": "MIT by its LICENSE file; its metadata names none",
    "skops": "MIT by its LICENSE file; its metadata names none",
}


@pytest.fixture(scope="module")
def project(root: Path) -> dict[str, Any]:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]


def needed(requirement: Requirement, extras: set[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in {"", *extras})


def dependencies(requirements: list[str]) -> dict[str, importlib.metadata.Distribution]:
    """Every installed package that some requirements need on this machine, directly or not."""
    todo = [(Requirement(text), set[str]()) for text in requirements]
    seen, packages = set(), {}
    while todo:
        requirement, extras = todo.pop()
        name = canonicalize_name(requirement.name)
        if not needed(requirement, extras) or (name, frozenset(requirement.extras)) in seen:
            continue
        seen.add((name, frozenset(requirement.extras)))
        packages[name] = importlib.metadata.distribution(name)
        todo += [(Requirement(text), requirement.extras) for text in packages[name].requires or []]
    return packages


def licences(metadata: Any) -> list[str]:
    """The alternatives under which a package may be used, by its best source: expression, text, classifiers."""
    text = metadata.get("License-Expression") or (metadata.get("License") or "").split("\n")[0]
    if text.strip():
        return SPLIT.split(text)
    classifiers = [line.rpartition("::")[2].strip() for line in metadata.get_all("Classifier") or []
                   if line.startswith("License ::")]  # fmt: skip
    return [line for line in classifiers if line != "OSI Approved"]


@pytest.mark.parametrize("extra", [None, "estimators"])
def test_no_dependency_forbids_the_licence(project: dict[str, Any], extra: str | None) -> None:
    requirements = project["optional-dependencies"][extra] if extra else project["dependencies"]
    try:
        packages = dependencies(requirements)
    except importlib.metadata.PackageNotFoundError as missing:
        if extra is None:
            raise
        pytest.skip(f"this environment has no {missing.name}: `make setup EXTRAS={extra}`")
    unclear = {name: licences(package.metadata) for name, package in packages.items()}
    assert len(packages) > (10 if extra else 100)
    refused = {name: texts for name, texts in unclear.items() if all(COPYLEFT.search(text) for text in texts)}
    assert {name: texts for name, texts in refused.items() if name not in EXCEPTIONS} == {}


@pytest.mark.parametrize(
    ("metadata", "allowed"),
    [
        ({"License-Expression": "LGPL-3.0-only"}, True),
        ({"License": "GPLv2 | EPLv1"}, True),
        ({"License": "GPLv3"}, False),
        ({"License-Expression": "AGPL-3.0-or-later"}, False),
        ({}, False),
    ],
)
def test_a_licence_is_refused_only_if_every_alternative_is(metadata: dict[str, str], allowed: bool) -> None:
    class Metadata(dict[str, str]):
        def get_all(self, name: str) -> None:
            return None

    assert (not all(COPYLEFT.search(text) for text in licences(Metadata(metadata)))) is allowed


def test_licence_and_version_are_the_same_everywhere(root: Path, project: dict[str, Any]) -> None:
    citation = YAML(typ="safe").load((root / "CITATION.cff").read_text())
    assert project["license"] == citation["license"] == "Apache-2.0"
    assert project["version"] == citation["version"]
    assert f"## {project['version']}" in (root / "CHANGELOG.md").read_text()
    text = (root / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_a_commit_runs_what_make_check_runs(root: Path) -> None:
    hooks = YAML(typ="safe").load((root / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["repo"] for repo in hooks] == ["local"]
    entries = [hook["entry"].removeprefix(".venv/bin/").replace(" --force-exclude", "") for hook in hooks[0]["hooks"]]
    recipes = dict(re.findall(r"^(\w+):.*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.MULTILINE))
    assert recipes["check"].split()[-2:] == ["lint", "contract"]
    lines = (recipes["lint"] + recipes["contract"]).splitlines()
    assert entries == [line.strip().removeprefix("$(BIN)/").removesuffix(" .") for line in lines]
