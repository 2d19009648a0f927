"""Files are whole or not there, refusals to write name the cure, and remembered hashes are never wrong."""

import ast
import contextlib
import errno
import gc
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import files
from models.errors import StoreError
from models.files import (
    CLOCK_TICK_NS,
    Hashes,
    ParsedFiles,
    read_python,
    replacing_folder,
    sha256,
    whole_file,
    write_bytes,
    write_json,
    write_text,
)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("failing", ["fsync", "fdopen"])
def test_a_failed_write_keeps_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "record.json"
    write_text(path, "old")

    def fail(*_: object) -> None:
        raise RuntimeError("power is gone")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, failing, fail)
        with pytest.raises(RuntimeError):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert left(tmp_path) == ["record.json"]


@pytest.mark.parametrize(
    ("number", "cure"),
    [
        (errno.ENOSPC, "free some space"),
        (errno.EDQUOT, "free some space"),
        (errno.EROFS, "LOOPLINE_HOME"),
        (errno.EACCES, "LOOPLINE_HOME"),
    ],
)
def test_refusals_of_the_disk_name_file_and_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, cure: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", refuse)
    with pytest.raises(StoreError, match=cure) as caught:
        write_bytes(tmp_path / "weights", b"x")
    assert "weights" in str(caught.value)
    assert left(tmp_path) == []


def test_a_full_disk_is_told_by_a_real_full_device() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(StoreError, match="disk is full"), files.storing(Path("/dev/full")):  # noqa: SIM117
        with open("/dev/full", "wb", buffering=0) as file:  # noqa: PTH123
            file.write(b"x")


def test_other_errors_of_the_system_pass_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.storing(tmp_path):
        (tmp_path / "absent").read_text()


def test_folders_are_made_and_json_is_stable(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "c.json"
    write_json(path, {"z": 1, "a": [1, 2]})
    first = path.read_bytes()
    write_json(path, {"a": [1, 2], "z": 1})
    assert path.read_bytes() == first


def test_threads_may_parse_at_once() -> None:
    path, trees = Path(files.__file__), []

    def let_the_other_go_on(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            time.sleep(0.001)

    threads = [threading.Thread(target=lambda: trees.append(ast.dump(read_python(path)))) for _ in range(2)]
    thresholds = gc.get_threshold()
    gc.callbacks.append(let_the_other_go_on)
    gc.set_threshold(200, 1000, 1000)  # the tree itself causes collections: there Python 3.11 may change the thread
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(let_the_other_go_on)
    assert trees == [ast.dump(ast.parse(path.read_bytes()))] * 2


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    for content in ("one", "two"):
        with replacing_folder(folder) as temporary:
            (temporary / content).write_text(content)
    assert left(folder) == ["two"]
    assert left(tmp_path) == ["prepared"]


def test_a_folder_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    with replacing_folder(folder) as temporary:
        (temporary / "old").write_text("")
    with pytest.raises(KeyboardInterrupt), replacing_folder(folder) as temporary:  # noqa: PT012
        (temporary / "new").write_text("")
        raise KeyboardInterrupt
    assert left(folder) == ["old"]
    assert left(tmp_path) == ["prepared"]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=2000), other=st.binary(max_size=2000))
def test_a_hash_is_of_the_content_alone(tmp_path: Path, content: bytes, other: bytes) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(content)
    two.write_bytes(other)
    assert (sha256(one) == sha256(two)) == (content == other)


def test_a_folders_hash_follows_names_and_contents(tmp_path: Path) -> None:
    def folder(name: str, **inner: str) -> str:
        for path, text in inner.items():
            write_text(tmp_path / name / path, text)
        return sha256(tmp_path / name)

    base = folder("a", x="1", y="2")
    assert folder("b", y="2", x="1") == base
    assert folder("c", x="2", y="1") != base
    assert folder("d", x="1", z="2") != base
    assert folder("e", x="1") != base


def test_an_unchanged_file_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * 100)
    old(tmp_path / "memory", path)
    reads = []
    monkeypatch.setattr(files, "sha256", lambda given: reads.append(given) or "read again")
    assert Hashes(tmp_path / "memory").of(path) != "read again"
    assert reads == []


def test_what_a_file_holds_is_parsed_again_after_a_change_alone(tmp_path: Path) -> None:
    files, paths, parsed = ParsedFiles[str](most=2), [tmp_path / name for name in "abc"], list[str]()

    def read(path: Path) -> str:
        def parse() -> str:
            parsed.append(path.name)
            return path.read_text()

        return files.of(path, parse)

    for path in paths:
        path.write_text("old")
    read(paths[0])
    read(paths[0])
    assert parsed == ["a", "a"], "it may change again within the tick of the clock"
    time.sleep(2 * CLOCK_TICK_NS / 1e9)
    assert [read(paths[0]), read(paths[0]), parsed] == ["old", "old", ["a"] * 3]
    paths[0].write_text("new")
    assert read(paths[0]) == "new"
    paths[0].unlink()
    with pytest.raises(FileNotFoundError):
        read(paths[0])
    parsed.clear()
    for name in (1, 2, 0, 1):
        with contextlib.suppress(FileNotFoundError):
            read(paths[name])
    assert parsed == ["b", "c", "a"], "the last two are kept"


def test_a_same_size_edit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"one")
    old(tmp_path / "memory", path)
    path.write_bytes(b"two")
    assert Hashes(tmp_path / "memory").of(path) == sha256(path)


def test_a_same_size_edit_with_the_old_time_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"one")
    old(tmp_path / "memory", path)
    before = path.stat()
    path.write_bytes(b"two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Hashes(tmp_path / "memory").of(path) == sha256(path)


def test_an_edit_in_the_same_tick_as_the_memory_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "data"
    for content in (b"one", b"two", b"thr", b"fou"):
        path.write_bytes(content)
        hashes = Hashes(tmp_path / "memory")
        assert hashes.of(path) == sha256(path)
        hashes.save()


def test_a_folder_through_the_memory_is_the_folder_without(tmp_path: Path) -> None:
    write_text(tmp_path / "folder" / "b" / "x", "1")
    write_text(tmp_path / "folder" / "a", "2")
    assert Hashes(tmp_path / "memory").of(tmp_path / "folder") == sha256(tmp_path / "folder")


@pytest.mark.parametrize("content", ["", "{", "[]x"])
def test_a_torn_memory_only_costs_time(tmp_path: Path, content: str) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    (tmp_path / "memory").write_text(content)
    assert Hashes(tmp_path / "memory").of(path) == sha256(path)


@pytest.mark.parametrize("content", ["[]", "null", "3", '{"x": 3}'])
def test_a_memory_of_another_shape_only_costs_time(tmp_path: Path, content: str) -> None:
    path = tmp_path / "data"
    path.write_text("x")
    (tmp_path / "memory").write_text(content.replace("x", str(path)))
    assert Hashes(tmp_path / "memory").of(path) == sha256(path)


def old(memory: Path, path: Path) -> None:
    """Remember `path` as if the memory had been written well after it."""
    hashes = Hashes(memory)
    hashes.of(path)
    hashes.save()
    late = path.stat().st_ctime_ns + 10 * files.CLOCK_TICK_NS
    os.utime(memory, ns=(late, late))


def write_then_raise(path: Path, error: Exception) -> None:
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise error


def test_a_file_that_fails_half_way_leaves_the_former_one(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("former")
    with pytest.raises(ValueError, match="half way"):
        write_then_raise(path, ValueError("half way"))
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_disk_or_a_read_only_folder_is_told_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    with pytest.raises(StoreError, match="a: "):
        write_then_raise(tmp_path / "a", OSError(number, "as the system says"))
    assert not list(tmp_path.iterdir())


def test_the_folder_is_made(tmp_path: Path) -> None:
    with whole_file(tmp_path / "new" / "a") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "new" / "a").read_text() == "x"
