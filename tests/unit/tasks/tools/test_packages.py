import io
import os
import stat
import tarfile
import zipfile

import pytest

from models.errors import DataError, StoreError
from tasks.gc.half_written import WRITER
from tasks.tools.packages import open_package, read_member


def client(folder, name, script):
    """A registry's client as the shell finds it: what it prints and leaves is all that is known of it."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


@pytest.fixture
def path(tmp_path, monkeypatch):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return folder


def test_a_package_is_downloaded_once_and_whole(path, tmp_path):
    client(path, "npm", "printf whole > small-1.0.0.tgz; echo run >> ../../count")
    folder = tmp_path / "cache" / "small"
    for _ in range(2):
        archive = open_package("npm", "small", "1.0.0", folder)
        assert archive == folder / "small-1.0.0.tgz"
        assert archive.read_text() == "whole"
    assert (tmp_path / "cache" / "count").read_text() == "run\n"
    assert list(folder.iterdir()) == [archive]


def test_a_client_that_fails_leaves_nothing_and_its_reason_is_told_without_credentials(path, tmp_path):
    client(path, "npm", "printf half > small.tgz; echo 'npm error network https://me:secret@registry/x' >&2; exit 1")
    with pytest.raises(StoreError, match=r"npm:small: npm could not fetch it .*offline") as caught:
        open_package("npm", "small", "1.0.0", tmp_path / "cache")
    assert "secret" not in str(caught.value)
    assert not list((tmp_path / "cache").iterdir())


def test_a_client_that_leaves_nothing_is_told(path, tmp_path):
    client(path, "npm", "exit 0")
    with pytest.raises(StoreError, match="left no archive"):
        open_package("npm", "small", "1.0.0", tmp_path / "cache")


def test_a_missing_client_is_told_with_the_cure(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(path))
    with pytest.raises(StoreError, match=r"'npm' is not on this machine: install Node\.js"):
        open_package("npm", "small", "1.0.0", tmp_path / "cache")


def test_the_reaper_knows_an_unfinished_download_by_its_name(path, tmp_path):
    client(path, "npm", "pwd > ../../where; printf whole > small-1.0.0.tgz")
    open_package("npm", "small", "1.0.0", tmp_path / "cache" / "small")
    writer = WRITER.search((tmp_path / "cache" / "where").read_text().strip())
    assert writer
    assert int(writer[1]) == os.getpid()


@pytest.fixture
def archives(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        wheel.writestr("inside/data.csv", "x")
    for name, mode in (("a.tgz", "w:gz"), ("a.tar.gz", "w:gz"), ("a.tar.bz2", "w:bz2")):
        with tarfile.open(tmp_path / name, mode) as tar:
            info = tarfile.TarInfo("./inside/data.csv")
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    return tmp_path


@pytest.mark.parametrize("name", ["a.whl", "a.tgz", "a.tar.gz", "a.tar.bz2"])
def test_a_file_inside_is_read_and_a_wrong_name_gets_the_nearest(archives, name):
    assert read_member(archives / name, "inside/data.csv") == b"x"
    with pytest.raises(DataError, match=rf"{name} holds no 'inside/dta.csv': did you mean 'inside/data.csv'"):
        read_member(archives / name, "inside/dta.csv")


@pytest.mark.parametrize("name", ["a.whl", "a.tgz"])
def test_a_damaged_archive_is_removed_so_that_the_next_run_gets_it_again(archives, name):
    path = archives / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(DataError, match=r"the archive is damaged.*run again"):
        read_member(path, "inside/data.csv")
    assert not path.exists()
