"""Small packages from the real registries, with their real clients."""

import shutil
import subprocess

import pytest

from models.errors import StoreError
from tasks.tools.packages import open_package
from tasks.tools.sources import fetch

pytestmark = pytest.mark.integration

PENGUINS = "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93"


def knows(package):
    known = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False)
    return "Candidate: (none)" not in known.stdout and package in known.stdout


def test_pypi(tmp_path):
    source = f"pypi:palmerpenguins==0.1.6!palmerpenguins/data/penguins.csv#sha256={PENGUINS}"
    assert fetch(source, tmp_path).read_text().startswith("species,island")


@pytest.mark.wide
@pytest.mark.skipif(not shutil.which("npm"), reason="npm is not on this machine")
def test_npm(tmp_path):
    assert '"isarray"' in fetch("npm:isarray@2.0.5!package/package.json", tmp_path).read_text()


@pytest.mark.wide
@pytest.mark.skipif(not shutil.which("apt-get"), reason="apt is not on this machine")
def test_debian(tmp_path):
    if not knows("hello"):
        pytest.skip("apt has no package lists here: apt-get update")
    assert "GNU" in fetch("debian:hello!usr/share/doc/hello/copyright", tmp_path).read_text()


def test_a_version_that_never_was_is_told_and_leaves_nothing(tmp_path):
    with pytest.raises(StoreError, match="could not fetch it"):
        open_package("pypi", "palmerpenguins", "999.0", tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
