"""Segments: one writer each, readable at any moment, and whose writer has ended can be seen."""

import errno
import os
import threading
import time

import pytest

from models.errors import StoreError
from models.serving.framing import framed, unframed
from tasks.state import segments as module
from tasks.state.segments import SegmentWriter, segments, segments_folder, sweep, waiting


def payloads(folder) -> list[bytes]:
    return [payload for one in segments(folder) for _, payload in unframed(one.read(0))]


def test_records_are_there_when_write_returns(tmp_path):
    folder = segments_folder(tmp_path, "labels")
    writer = SegmentWriter(folder)
    assert segments(folder) == []
    for payload in (b"one", b"two"):
        writer.write(payload)
    assert payloads(folder) == [b"one", b"two"]
    (segment,) = waiting(folder)
    assert (segment.is_left, segment.moved) == (False, 0)
    segment.note_moved(segment.size)
    assert waiting(folder) == [], "its writer lives, and all of it is moved"
    writer.write(b"three")
    assert waiting(folder) == [segment]
    segment.note_moved(segment.size)
    writer.close()
    assert segment.is_left
    assert waiting(folder) == [segment], "to be deleted"
    segment.remove()
    assert list(folder.iterdir()) == []


def test_a_large_one_is_left_for_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "SEGMENT_BYTES", 64)
    writer = SegmentWriter(tmp_path)
    for number in range(9):
        writer.write(b"%020d" % number)
    assert payloads(tmp_path) == [b"%020d" % number for number in range(9)]
    assert [one.is_left for one in segments(tmp_path)] == [True, True, False]
    writer.close()


def test_threads_share_a_writer(tmp_path):
    writer = SegmentWriter(tmp_path)
    threads = [threading.Thread(target=lambda n=n: [writer.write(b"%d" % n) for _ in range(50)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert sorted(payloads(tmp_path)) == sorted([b"%d" % n for n in range(4)] * 50)


@pytest.mark.parametrize("room", [0, 5])
def test_a_full_disk_adds_nothing_and_later_records_are_read(tmp_path, monkeypatch, room):
    """A record of which only a part fits is taken back: what followed it would never be read."""
    writer, write = SegmentWriter(tmp_path), os.write
    writer.write(b"before")

    def full(file, content):
        if room:
            return write(file, content[:room])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(StoreError, match="the disk is full"):
        writer.write(b"lost")
    monkeypatch.undo()
    assert [one.size for one in segments(tmp_path)] == [len(framed(b"before"))]
    writer.write(b"after")
    writer.close()
    assert payloads(tmp_path) == [b"before", b"after"]


@pytest.mark.parametrize(("number", "message"), [(errno.EIO, "cannot be written"), (errno.EFBIG, "ulimit -f")])
def test_whatever_else_keeps_it_from_writing_is_told_as_such(tmp_path, monkeypatch, number, message):
    writer = SegmentWriter(tmp_path)
    writer.write(b"before")

    def broken(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", broken)
    with pytest.raises(StoreError, match=message):
        writer.write(b"lost")
    monkeypatch.undo()
    writer.write(b"after")
    writer.close()
    assert payloads(tmp_path) == [b"before", b"after"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "serving").write_text("a file")
    with pytest.raises(StoreError, match="a file lies where a folder is expected"):
        SegmentWriter(segments_folder(tmp_path)).write(b"one")


def test_one_that_is_gone_is_empty_and_left(tmp_path):
    writer = SegmentWriter(tmp_path)
    writer.write(b"one")
    (segment,) = segments(tmp_path)
    segment.remove()
    assert (segment.size, segment.is_left, segment.moved) == (0, True, 0)
    writer.close()


def test_what_a_killed_writer_left_before_it_wrote_goes_after_a_while(tmp_path):
    for name, age in ((".1.seg.tmp", 7200), (".2.seg.tmp", 0), (".3.seg.moved.tmp", 7200)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".2.seg.tmp"]
