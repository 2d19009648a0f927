"""What supervisord is told, read back by supervisord's own reader."""

import socket
import threading
from pathlib import Path

import pytest
from supervisor.options import ServerOptions

from models.errors import StoreError
from models.launch import launched
from tasks.platform.supervision import (
    LONGEST_SOCKET,
    _own_folder,
    _refuse_comments,
    configuration,
    connected,
    socket_path,
)

NAMES = ["prefect", "mlflow", "worker"]


def read_back(folder: Path, root: Path) -> ServerOptions:
    folder.mkdir(parents=True)
    (folder / "logs").mkdir()
    path = folder / "supervisord.conf"
    path.write_text(configuration(folder, root, NAMES))
    options = ServerOptions()
    options.realize(["-c", str(path)])
    return options


@pytest.mark.parametrize("name", ["plain", "with space", "a 100% odd 'name'"])
def test_supervisord_reads_what_it_is_told_wherever_the_workspace_lies(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "platform"
    options = read_back(folder, tmp_path / name)
    groups = sorted(options.process_group_configs, key=lambda group: group.priority)
    assert [group.name for group in groups] == NAMES, "started in this order, ended in the other"
    assert options.nodaemon
    assert Path(options.logfile) == folder / "supervisord.log"
    for group in groups:
        (program,) = group.process_configs
        assert program.autorestart
        assert program.startsecs > 0
        assert program.startretries > 3, "back-off before it is given up"
        assert program.killasgroup
        assert Path(program.stdout_logfile) == folder / "logs" / f"{group.name}.log"


def test_each_command_names_workspace_and_service_as_words_of_their_own(tmp_path: Path) -> None:
    import shlex

    root = tmp_path / "with space"
    for group in read_back(root / "platform", root).process_group_configs:
        words = shlex.split(group.process_configs[0].command)
        assert words[1:] == launched("tasks.platform.service_main", str(root), group.name)


def test_a_worker_is_killed_and_a_server_asked(tmp_path: Path) -> None:
    import signal

    groups = read_back(tmp_path / "platform", tmp_path).process_group_configs
    assert {group.name: group.process_configs[0].stopsignal for group in groups} == {
        "prefect": signal.SIGTERM,
        "mlflow": signal.SIGTERM,
        "worker": signal.SIGKILL,
    }


def test_the_socket_lies_in_the_workspace_unless_the_kernel_refuses_so_long_a_path(tmp_path: Path) -> None:
    short, long = Path("/w/.loopline/platform"), tmp_path / ("long" * 30)
    assert socket_path(short).parent == short
    assert len(str(socket_path(long))) <= LONGEST_SOCKET
    assert socket_path(long) != socket_path(tmp_path / ("else" * 30))


def test_a_folder_that_others_may_write_to_holds_no_socket(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(StoreError, match="not this user's alone"):
        _own_folder(shared, tmp_path)
    _own_folder(tmp_path / "own", tmp_path)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700


def test_asking_where_nobody_listens_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"), connected(str(tmp_path / "none.sock")) as supervised:
        supervised.getState()


def test_a_supervisord_that_does_not_answer_is_a_timeout(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with pytest.raises(TimeoutError, match="timed out"), connected(path, 0.1) as supervised:
            supervised.getState()


def test_a_connection_that_supervisord_closes_is_an_os_error_and_not_opened_again(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as dying:
        dying.bind(path)
        dying.listen()
        thread = threading.Thread(target=lambda: dying.accept()[0].close())
        thread.start()
        with pytest.raises(OSError, match=r".+"), connected(path) as supervised:
            supervised.getState()
        thread.join()


@pytest.mark.parametrize("name", ["work #1", "a ;b"])
def test_a_folder_whose_name_would_be_cut_short_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="for a comment: rename the folder"):
        _refuse_comments(tmp_path, tmp_path / name / "platform")
