"""One holder at a time; the other is told in the words of the caller."""

import errno
import os
from pathlib import Path

import filelock
import pytest

from models.errors import StoreError
from tasks.host.locks import held, is_held, tried


def test_a_second_holder_is_told_and_the_next_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "a.lock"
    with held(path, lambda: "never said"):
        with pytest.raises(StoreError) as told, held(path, lambda: "busy: wait"):
            pass
        assert str(told.value) == "busy: wait"
    with held(path, lambda: "never said"):
        assert path.exists()


def test_what_fails_inside_lets_go_and_is_not_taken_for_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with pytest.raises(ZeroDivisionError), held(path, lambda: "busy"):
        _ = 1 / 0
    with held(path, lambda: "busy"):
        pass


def test_one_may_try_without_a_word(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with tried(path) as ours, tried(path) as theirs:
        assert (ours, theirs) == (True, False)
    with tried(path) as again:
        assert again


def test_whether_one_is_held_is_seen_without_making_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    assert not is_held(path)
    assert not path.exists()
    with tried(path):
        assert is_held(path)
    assert not is_held(path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_one_that_this_user_cannot_open_names_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """As another user's file or a read-only disk would; the tests may run as root, who may open all."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / "a.lock"))

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    with pytest.raises(StoreError, match=r"a\.lock: .*set LOOPLINE_HOME"), held(tmp_path / "a.lock", lambda: "busy"):
        pass
    (tmp_path / "a.lock").touch()
    assert is_held(tmp_path / "a.lock")


def test_one_that_cannot_be_opened_is_taken_for_held(tmp_path: Path) -> None:
    (tmp_path / "a.lock").mkdir()
    assert is_held(tmp_path / "a.lock")
