import errno

import pytest

from models.errors import StoreError
from models.files import whole_file


def write_then_raise(path, error):
    with whole_file(path) as temporary:
        temporary.write_text("half")
        raise error


def test_a_file_that_fails_half_way_leaves_the_former_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("former")
    with pytest.raises(ValueError, match="half way"):
        write_then_raise(path, ValueError("half way"))
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_full_disk_or_a_read_only_folder_is_told_and_leaves_nothing(tmp_path, number):
    with pytest.raises(StoreError, match="a: "):
        write_then_raise(tmp_path / "a", OSError(number, "as the system says"))
    assert not list(tmp_path.iterdir())


def test_the_folder_is_made(tmp_path):
    with whole_file(tmp_path / "new" / "a") as temporary:
        temporary.write_text("x")
    assert (tmp_path / "new" / "a").read_text() == "x"
