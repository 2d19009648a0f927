"""The program: what a script can rely on, exit codes and JSON; what a person reads, one line and the cure."""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner, Result

from flows.cli import loopline, main
from models.errors import DataError, GateRefused, LooplineError, StoreError, UsageError
from tasks.host.workspace import Workspace
from tasks.loop.history import LoopRecord, save_loop
from tests.conftest import MakeProject

PROGRAM = Path(sys.executable).with_name("loopline")
MORE = "more: loopline docs reference/errors#flows.cli"


def call(*arguments: str) -> Result:
    return CliRunner().invoke(loopline, list(arguments))


def exit_code_of(command: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> object:
    """How the program ends when its command does this."""
    monkeypatch.setattr("flows.cli.loopline", command)
    for ends in ("flows.prefect.sigterm._end", "flows.cli._leave"):  # which would end the tests
        monkeypatch.setattr(ends, lambda _: None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        signal.signal(signal.SIGTERM, before)
    return ended.value.code


def test_an_unknown_command_names_the_nearest() -> None:
    result = call("paln", "tiny")
    assert result.exit_code == 2
    assert "no command 'paln': did you mean 'plan'?" in result.output


AWAY = ("status", "plan tiny", "reap", "monitor tiny", "trigger tiny", "backtest tiny", "up")


@pytest.mark.parametrize("command", AWAY)
def test_a_state_database_that_is_away_is_told_in_one_line_by_every_command(
    make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    project = make_project("tiny")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens there
        port = closed.getsockname()[1]
        monkeypatch.setenv("LOOPLINE_STATE_URL", f"postgresql://ada:secret@127.0.0.1:{port}/state")
        told = call(*command.split()).exception
    assert isinstance(told, StoreError)
    lines = str(told).splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"postgresql+psycopg://127.0.0.1:{port}/state: cannot be used (")
    assert "start it again, or correct LOOPLINE_STATE_URL" in lines[0]
    assert "secret" not in lines[0]
    assert not (project.workspace.state / "platform" / "supervisord.conf").exists(), "nothing was started"


def test_the_platform_ends_without_its_state_database(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOPLINE_STATE_URL", "postgresql://127.0.0.1:1/state")
    (workspace.state / "projects" / "tiny").mkdir(parents=True)
    refused = call("down").exception
    assert str(refused).endswith("LOOPLINE_STATE_URL: `loopline down --force` ends the platform without it")
    told = call("down", "--force")
    assert told.exit_code == 0
    assert "what ended runs left is put right by the next `loopline up`: postgresql" in told.output
    assert "nothing of the platform was running" in told.output


@pytest.mark.parametrize("error", [UsageError("a"), DataError("b"), GateRefused("c")])
def test_our_errors_are_one_line_with_their_address_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: LooplineError
) -> None:
    def fail() -> None:
        raise error

    assert exit_code_of(fail, monkeypatch) == error.exit_code
    assert capsys.readouterr().err == f"loopline: {error}\n{MORE}\n"


@pytest.mark.parametrize("error", [StoreError("the server cannot be reached"), OSError("reset")])
def test_an_error_met_after_sigterm_does_not_hide_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    def fail() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            raise error

    assert exit_code_of(fail, monkeypatch) == 128 + signal.SIGTERM
    assert str(error) in capsys.readouterr().err


def test_what_the_operating_system_refuses_is_one_line_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/srv/theirs/.loopline/prefect/secret")

    assert exit_code_of(fail, monkeypatch) == 1
    path = "/srv/theirs/.loopline/prefect/secret"
    cure = "change its owner or mode, or set LOOPLINE_HOME"
    assert capsys.readouterr() == ("", f"loopline: {path}: this user may not read or write it: {cure}\n")


def test_a_full_disk_in_a_tools_own_words_gets_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        try:
            raise OSError(28, "No space left on device")
        except OSError as error:
            raise DataError("ORC: cannot be written") from error

    exit_code_of(fail, monkeypatch)
    cure = "the disk is full: free some space and run again"
    assert capsys.readouterr().err == f"loopline: ORC: cannot be written\n{cure}\n{MORE}\n"


@pytest.mark.parametrize("command", [("schema",), ("--help",), ("status", "--json")])
def test_output_that_cannot_be_written_is_one_line(workspace: Workspace, command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = _program(*command, stdout=full, home=workspace.root)
    assert done.returncode == 1
    assert done.stderr == ("loopline: standard output takes no more (No space left on device): write it elsewhere\n")


def test_a_folder_that_was_deleted_under_the_shell_is_told(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    delete = f"cd {tmp_path}/gone && rmdir ../gone && exec {PROGRAM} status"
    done = subprocess.run(["sh", "-c", delete], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 2)
    assert "loopline: the current folder of this shell was deleted" in done.stderr


def test_a_crash_in_compiled_code_names_the_line_that_called_it(tmp_path: Path) -> None:
    crash = "import ctypes, flows.cli as cli\ncli.loopline = lambda: ctypes.string_at(0)\ncli.main()"
    (tmp_path / "crash.py").write_text(crash)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        [sys.executable, tmp_path / "crash.py"], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == -signal.SIGSEGV
    assert f'File "{tmp_path}/crash.py", line 2 in <lambda>' in done.stderr


def _program(*arguments: str, stdout: IO[str], home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LOOPLINE_HOME": str(home)}
    return subprocess.run(
        [PROGRAM, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, env=environment
    )


def test_a_project_that_is_not_there(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    for command in ("run", "plan", "promote", "rollback", "status"):
        result = call(command, "tinny")
        assert isinstance(result.exception, UsageError), command
        assert "did you mean 'tiny'" in str(result.exception)


OF_A_PROJECT = ("run", "plan", "promote", "rollback", "release", "trigger", "monitor", "serve", "suggest-labels")


@pytest.mark.parametrize("command", [*OF_A_PROJECT, "label {} FILE", "predict {} FILE", "export {} --to FOLDER"])
def test_no_command_takes_a_copy_of_a_project_for_the_original(
    workspace: Workspace, make_project: MakeProject, command: str
) -> None:
    project = make_project("tiny")
    state = project.state("tiny")
    save_loop(state, LoopRecord("tiny-1", "finished", folder=str(project.folder)))
    copy = make_project("tiny", folder=workspace.root / "projects" / "copy")
    (workspace.root / "FILE").write_text("id,y\n1,2\n")
    command = command.replace("FILE", str(workspace.root / "FILE"))
    result = call(*(command.format("copy") if "{}" in command else f"{command} copy").split())
    assert isinstance(result.exception, UsageError), result.output
    assert f"the name 'tiny' is taken by {project.folder}: choose another `name`" in str(result.exception)
    assert str(result.exception).startswith(copy.shown_spec)
    assert not state.exists(), "nothing was recorded"


def test_plan_says_what_would_run_and_as_json(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    shown = call("plan", "tiny")
    assert shown.exit_code == 0
    assert shown.output.splitlines()[0].split() == ["ingest", "would", "run", "never", "run"]
    told = json.loads(call("plan", "tiny", "--json").output)
    assert told[0] == {"step": "ingest", "state": "run", "reasons": ["never run"], "reads": []}
    assert {step["state"] for step in told[1:]} == {"follow"}


@pytest.mark.parametrize(("trials", "step"), [(3, "search"), (0, "train")])
def test_plan_says_that_a_probe_is_to_come(
    workspace: Workspace, make_project: MakeProject, monkeypatch: pytest.MonkeyPatch, trials: int, step: str
) -> None:
    monkeypatch.setattr("models.estimators.checks.check_installed", lambda *_: None)
    make_project("tiny")
    net = "sklearn.naive_bayes:GaussianNB"
    arguments = ("plan", "tiny", "-s", f"model.net={net}", "-s", "model.arguments={}", "-s", f"search.trials={trials}")
    last = call(*arguments).output.splitlines()[-1]
    assert last.startswith(f"{step} begins with a probe of {net}, which runs its code on drawn rows: `loopline plan")
    told = json.loads(call(*arguments, "--json").output)
    assert {row["step"]: row["probes"] for row in told if "probes" in row} == {step: [net]}


def test_a_spec_without_an_estimator_has_nothing_to_probe(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    result = call("plan", "tiny", "--probe")
    assert isinstance(result.exception, UsageError)
    assert "the spec names no estimator by reference: leave it out" in str(result.exception)


def test_plan_with_a_wrong_override_starts_nothing(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    result = call("plan", "tiny", "-s", "train.eposch=3")
    assert isinstance(result.exception, UsageError)
    assert "did you mean 'epochs'" in str(result.exception)


def test_run_with_an_unknown_step_to_refresh(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    result = call("run", "tiny", "--refresh", "ingset")
    assert result.exit_code == 2
    assert "no step 'ingset': one of ingest" in result.output


def test_status_of_a_project_elsewhere(workspace: Workspace, make_project: MakeProject, tmp_path: Path) -> None:
    away = make_project("away", folder=tmp_path / "away")
    assert call("status", "--json").output.count('"away"') == 0
    save_loop(workspace.state / "projects" / "away", LoopRecord("away-1", "finished", folder=str(away.folder)))
    assert [one["project"] for one in json.loads(call("status", "--json").output)["projects"]] == ["away"]
    assert json.loads(call("status", "away", "--json").output)["projects"][0]["folder"] == str(away.folder)


def test_status_of_a_fresh_workspace_and_of_a_broken_spec(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    make_project("broken").spec_path.write_text("data: {}\n")
    told = json.loads(call("status", "--json").output)
    broken, tiny = told["projects"]
    assert (tiny["state"], tiny["champion"], tiny["owed"][0]) == ("never run", None, "ingest")
    assert "data.source: missing" in broken["error"]
    assert (tiny["light"], broken["light"], told["light"]) == ("amber", "red", "red")
    assert {"url", "state"} <= set(told["services"]["prefect"]) & set(told["services"]["overview"])
    assert told["services"]["mlflow"]["url"] is None
    assert (tiny["next_loop"], tiny["last_decision"], tiny["waiting"]) == (None, None, None)
    shown = call("status")
    assert shown.exit_code == 0
    assert "a run would begin at ingest" in shown.output
    assert "there is no champion" in shown.output
    assert "\x1b" not in shown.output


def test_env_can_be_evaluated_by_a_shell(workspace: Workspace) -> None:
    script = call("env").output + 'printf "%s %s" "$MLFLOW_TRACKING_URI" "$LOOPLINE_HOME"'
    told = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={})
    assert told.stdout == f"sqlite:///{workspace.state}/mlflow/mlflow.db {workspace.root}", (
        "never one without the other"
    )


def test_doctor_as_json_says_what_it_looked_at(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    result = call("doctor", "--json")
    assert result.exit_code == 0, result.output
    assert {"python", "packages", "workspace", "disk", "specs"} <= {
        finding["what"] for finding in json.loads(result.output)
    }


def test_doctor_checks_a_machine_that_has_no_workspace_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOPLINE_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    result = call("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.output)}
    assert (result.exit_code, findings["workspace"]["state"]) == (1, "wrong")
    assert findings["workspace"]["cure"].endswith("or begin one here by `loopline init`")
    assert findings["python"]["state"] == "ok"
    assert {"packages", "torch", "cores"} <= findings.keys()


def test_doctor_fails_where_a_loop_would(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny").spec_path.write_text("data: {}\n")
    assert call("doctor").exit_code == 1


def test_reap_with_nothing_to_do(workspace: Workspace) -> None:
    assert call("reap").output == "nothing to put right\n"
    assert json.loads(call("reap", "--json").output) == []


def test_the_program_itself_exits_with_the_errors_code(tmp_path: Path) -> None:
    environment = {**os.environ, "LOOPLINE_HOME": str(tmp_path)}
    done = subprocess.run([PROGRAM, "plan", "nothing"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("loopline: got project 'nothing'")
    assert "Traceback" not in done.stderr


def test_a_sign_that_a_terminal_cannot_show_ends_nothing(workspace: Workspace, make_project: MakeProject) -> None:
    make_project("tiny")
    program = [sys.executable, "-c", "from flows.cli import main; main()", "status"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1", "LOOPLINE_HOME": str(workspace.root)}
    done = subprocess.run(program, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert b"tiny" in done.stdout


ENDS = """
import atexit, os, signal, sys
from flows import cli
from models.errors import GateRefused
from models.project_spec import own_reads
def refuse():
    raise GateRefused("no")
def command():
    global left_open
    own_reads.watch("own.py")
    left_open = open(sys.argv[1], "w")
    left_open.write("whole")
    atexit.register(print, "the last act")
    {}
atexit.register(print, "the interpreter is taken down")
cli.loopline = command
cli.main()
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os.kill(os.getpid(), signal.SIGTERM)", 128 + signal.SIGTERM),
        ("sys.exit(0)", 0),
        ("sys.exit(2)", 2),
        ("refuse()", GateRefused.exit_code),
    ],
)
def test_a_program_ends_at_once_after_its_last_act(end: str, code: int, tmp_path: Path) -> None:
    """Who sent a signal waits; to take down an interpreter with MLflow and torch takes seconds on a busy machine."""
    program = [sys.executable, "-c", ENDS.format(end), str(tmp_path / "of a user")]
    ended = subprocess.run(program, cwd=PROGRAM.parents[2], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (code, "the last act\n"), ended.stderr
    assert (tmp_path / "of a user").read_text() == "whole"
