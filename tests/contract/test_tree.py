"""What is in the repository works anywhere: no address of a registry, no path of one machine, every project in DVC."""

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

NAMES = (
    "pypi",
    r"python\w+",
    "npmjs",
    "npmmirror",
    "debian",
    "ubuntu",
    "anaconda",
    "crates",
    "rubygems",
    "huggingface",
)
ENDINGS = ("org", "com", "io", "co", "net")
REGISTRIES = re.compile(
    rf"\b({'|'.join(NAMES)})\.({'|'.join(ENDINGS)})\b"
    r"|\b(download|data)\.pytorch\.org\b|\b(pypi|npm|nexus|artifactory)\.[\w.-]+\.(internal|local|corp|lan)\b"
    r"|--(extra-)?index-url[ =]\S*://|--find-links[ =]\S*://"
)
MACHINE_PATHS = re.compile(r"(?<![\w.$}/-])/(work|root|Users|home)/(?!linuxbrew)[\w.-]+")
BINARY = {".png", ".parquet", ".gz", ".zip", ".onnx", ".safetensors", ".ico"}

# Path -> why it may name one.
EXCEPTIONS: dict[str, str] = {}


@pytest.fixture(scope="module")
def texts(tracked: list[Path]) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8", errors="replace") for path in tracked if path.suffix not in BINARY}


@pytest.mark.parametrize("pattern", [REGISTRIES, MACHINE_PATHS], ids=["registries", "machine paths"])
def test_nothing_names_a_registrys_address_or_one_machine(
    root: Path, texts: dict[Path, str], pattern: re.Pattern[str]
) -> None:
    hits = [
        f"{path.relative_to(root)}:{text.count(chr(10), 0, found.start()) + 1}: {found.group()}"
        for path, text in texts.items()
        for found in pattern.finditer(text)
        if str(path.relative_to(root)) not in EXCEPTIONS
    ]
    assert hits == []


def test_every_project_is_in_dvcs_matrix(root: Path, tracked: list[Path]) -> None:
    """Projects that somebody tries in the clone are there from their first run on; `make check` lets them be."""
    stages = YAML(typ="safe").load((root / "dvc.yaml").read_text())["stages"]
    there = {path.parent.name for path in (root / "projects").glob("*/project.yaml")}
    shipped = {path.parent.name for path in tracked if path.match("projects/*/project.yaml")}
    assert len(shipped) > 3
    for name, stage in stages.items():
        listed = set(stage["matrix"]["project"])
        assert shipped <= listed <= there, name


def test_every_project_says_what_it_is(root: Path) -> None:
    for spec in (root / "projects").glob("*/project.yaml"):
        assert (spec.parent / "README.md").is_file(), spec.parent.name


def test_nothing_that_is_made_is_tracked(root: Path, tracked: list[Path]) -> None:
    made = {".loopline", ".venv", "__pycache__", ".pytest_cache"}
    assert [str(path) for path in tracked if made & set(path.relative_to(root).parts)] == []
    assert [str(path) for path in tracked if path.suffix == ".onnx"] == []


def test_no_tracked_file_is_large(root: Path, tracked: list[Path]) -> None:
    large = [str(path.relative_to(root)) for path in tracked if path.stat().st_size > 1_000_000]
    assert large == []
