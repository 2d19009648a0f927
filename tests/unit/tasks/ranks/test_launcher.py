import json
import re
import threading

import pytest

from models.errors import LeaseLostError, TrainingError, UsageError, UserCodeError
from models.training.job import ERROR_FILE, JOB_FILE, STOP_FILE, EpochReport
from models.training.node import append_progress
from models.training.rank import run_job
from tasks.ranks import launcher
from tasks.ranks.launcher import (
    JobLostError,
    JobOwner,
    SchedulerAwayError,
    StoppedWaitingError,
    key_of_folder,
    name_of,
    seconds_of,
    train_at,
)

OWNER = JobOwner("0123456789abcdef", lambda: None)


class Engine:
    """A launcher whose states are a script; a job is over when the script calls `at`."""

    def __init__(self, *states, refuses=()):
        self.states, self.submitted, self.cancelled = list(states), [], []
        self.refuses = list(refuses)

    def submit(self, key, job, shape):
        if self.refuses:
            raise self.refuses.pop(0)
        self.submitted.append((key, job, shape))
        return f"submitted {key}"

    def state(self, key):
        if "-" not in key:  # of an earlier Loopline
            return "ended"
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if callable(state):
            return state()
        return state

    def cancel(self, key):
        self.cancelled.append(key)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(launcher, "_LOOK_S", 0)


def finishing(job):
    def finish():
        run_job(job, lambda epoch: append_progress(job.folder, epoch) is None)
        return "ended"

    return finish


def test_a_job_is_submitted_once_and_its_epochs_are_reported_once(make_job):
    job, said, epochs = make_job(arguments={"hidden": 8}, ranks=2, nodes="2:3"), [], []
    engine = Engine("ended", "queued", "running", finishing(job.model_copy(update={"train": job.train})))
    result = train_at(engine, job, OWNER, lambda epoch: epochs.append(epoch.epoch) is None, said.append)
    ((key, folder, shape),) = engine.submitted
    assert (folder, shape.nodes, shape.ranks) == (job.folder, (2, 3), 2)
    assert json.loads((folder / JOB_FILE).read_text())["folder"] == str(folder)
    assert epochs == [1, 2, 3]
    assert said == [f"submitted {key}", f"loopline-{key} is running", f"loopline-{key} is ended"][: len(said)]
    assert train_at(engine, job, OWNER) == result
    assert len(engine.submitted) == 1


def test_epochs_that_come_with_the_result_are_reported(make_job, monkeypatch):
    job, epochs = make_job(arguments={"hidden": 8}), []
    look = launcher.read_finished

    def finish_at_the_look(which):
        if job.folder.exists():
            run_job(job, lambda epoch: append_progress(job.folder, epoch) is None)
        return look(which)

    monkeypatch.setattr(launcher, "read_finished", finish_at_the_look)
    train_at(Engine("ended", "running"), job, OWNER, lambda epoch: epochs.append(epoch.epoch) is None)
    assert epochs == [1, 2, 3]


def test_a_running_job_is_attached_to(make_job):
    job = make_job(arguments={"hidden": 8})
    engine = Engine("running", finishing(job))
    assert train_at(engine, job, OWNER).epochs
    assert engine.submitted == []


def test_two_workspaces_at_one_path_have_jobs_of_two_names(make_job):
    names = {name_of(key_of_folder(make_job().folder, workspace)) for workspace in ("a" * 32, "b" * 32)}
    assert len(names) == 2
    assert all(re.fullmatch("[a-z0-9-]{1,52}", name) for name in names), "Kubernetes adds 11 characters for its pods"


def test_a_job_that_runs_since_before_an_upgrade_is_found_by_its_name(make_job):
    class EarlierEngine(Engine):
        def state(self, key):
            return super().state(f"{key}-") if "-" not in key else "ended"

    job = make_job(arguments={"hidden": 8})
    job.folder.mkdir()
    (job.folder / JOB_FILE).write_text("{}")
    engine = EarlierEngine("running", "running", finishing(job))
    assert train_at(engine, job, OWNER).epochs
    assert engine.submitted == []


@pytest.mark.parametrize("act", ["submit", "stop", "cancel"])
def test_who_lost_the_loop_leaves_the_job_to_the_next(make_job, act):
    """Both follow one job by its name; the former one is stopped, or its pruner ends the trial, or a person it."""

    def lost():
        raise LeaseLostError("taken over")

    def interrupt():
        raise KeyboardInterrupt

    job, said = make_job(), []
    job.folder.mkdir()
    append_progress(job.folder, EpochReport(epoch=1, epochs=3, values={}))
    engine = Engine({"submit": "ended", "stop": "running", "cancel": interrupt}[act])
    with pytest.raises(KeyboardInterrupt if act == "cancel" else LeaseLostError):
        train_at(engine, job, JobOwner(OWNER.workspace, lost), lambda epoch: False, said.append)
    assert engine.submitted + engine.cancelled == []
    assert not (job.folder / STOP_FILE).exists()
    assert any("is not cancelled: taken over" in line for line in said) == (act == "cancel")


def test_who_was_paused_before_it_submits_attaches_to_the_job_of_the_next(make_job):
    """An engine has one job of a name, or runs one at a time: the pause comes between the check and the act."""
    job, names = make_job(arguments={"hidden": 8}), set()

    class NamedEngine(Engine):
        def submit(self, key, job, shape):
            names.add(name_of(key))
            return super().submit(key, job, shape)

    engine, next_one = NamedEngine("ended", "running", finishing(job)), NamedEngine("ended", "running", "running")

    def pause():
        with pytest.raises(StoppedWaitingError):
            train_at(next_one, job, OWNER, is_stopped=lambda: bool(next_one.submitted))

    assert train_at(engine, job, JobOwner(OWNER.workspace, pause)).epochs
    assert (len(engine.submitted), len(next_one.submitted), len(names)) == (1, 1, 1)


def test_a_job_that_is_being_cancelled_is_not_attached_to(make_job):
    job = make_job(arguments={"hidden": 8})
    engine = Engine("ending", "ending", "ended", "ending", "queued", "running", finishing(job))
    assert train_at(engine, job, OWNER).epochs
    assert len(engine.submitted) == 1


def test_nothing_is_submitted_while_the_scheduler_is_away(make_job):
    job, said = make_job(arguments={"hidden": 8}), []
    engine = Engine("unknown", "unknown", "ended", "unknown", "running", "unknown", finishing(job),
                    refuses=[SchedulerAwayError("no answer")])  # fmt: skip
    assert train_at(engine, job, OWNER, say=said.append).epochs
    assert engine.submitted == []
    assert "no answer" in said
    assert any("the engine is away" in line for line in said)


def test_an_error_in_a_rank_is_raised_here_and_ends_the_job(make_job):
    job = make_job()

    def fail():
        (job.folder / ERROR_FILE).write_text(json.dumps({"type": "UserCodeError", "text": "oh", "traceback": "line 3"}))
        return "running"

    engine = Engine("ended", fail)
    with pytest.raises(UserCodeError, match="oh") as caught:
        train_at(engine, job, OWNER)
    assert "line 3" in "".join(caught.value.__notes__)
    assert engine.cancelled == [engine.submitted[0][0]]
    engine = Engine("ended", "running", "ended")
    with pytest.raises(TrainingError, match="ended without a result"):
        train_at(engine, job, OWNER)  # the error of the job before is not this one's


def test_a_time_limit_is_said_as_what_it_is_but_not_that_of_the_job_before(make_job):
    job = make_job(arguments={"hidden": 8})
    with pytest.raises(JobLostError, match=r"was ended by the time limit of its place \(`time` in places.yaml\)"):
        train_at(Engine("ended", "running", "overdue", "ended"), job, OWNER)
    engine = Engine("overdue", "ended", "running", "ended")
    with pytest.raises(JobLostError, match="ended without a result"):
        train_at(engine, job, OWNER)
    assert len(engine.submitted) == 1


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("90", 5400), ("1:30", 90), ("12:00:00", 43200), ("2-0", 172_800), ("1-2:30", 95_400), ("1-02:30:05", 95_405)],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(limit, seconds):
    assert seconds_of(limit) == seconds


def test_a_result_that_a_shared_folder_shows_late_is_read(make_job, monkeypatch):
    job, hidden = make_job(arguments={"hidden": 8}), iter(range(60))
    look = launcher.read_finished

    def late(which):
        return None if (which.folder / "result.json").exists() and next(hidden, None) is not None else look(which)

    monkeypatch.setattr(launcher, "read_finished", late)
    engine = Engine("ended", *["running"] * 6, finishing(job), "ended")
    assert train_at(engine, job, OWNER).epochs
    assert len(engine.submitted) == 1


def test_a_refusal_to_say_the_state_does_not_leave_a_submitted_job(make_job):
    job = make_job(arguments={"hidden": 8})

    def refuse():
        raise UsageError("no such host")

    engine = Engine("ended", "queued", refuse, "running", finishing(job))
    assert train_at(engine, job, OWNER).epochs
    assert len(engine.submitted) == 1
    with pytest.raises(UsageError, match="no such host"):
        train_at(Engine(refuse), make_job(folder="other"), OWNER)


def test_an_engine_that_is_away_does_not_hide_why_a_job_is_cancelled(make_job):
    job, said = make_job(), []

    class Away(Engine):
        def cancel(self, key):
            raise SchedulerAwayError("Slurm is away")

    def fail():
        (job.folder / ERROR_FILE).write_text(json.dumps({"type": "UserCodeError", "text": "oh", "traceback": ""}))
        return "running"

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(UserCodeError, match="oh"):
        train_at(Away("ended", fail), job, OWNER, say=said.append)
    assert "is not cancelled: Slurm is away" in said[-1]
    with pytest.raises(KeyboardInterrupt):
        train_at(Away("running", interrupt), make_job(folder="other"), OWNER, say=said.append)


def test_false_stops_the_job_and_ctrl_c_cancels_it(make_job):
    job = make_job(arguments={"hidden": 8})
    job.folder.mkdir()

    def one_epoch():
        append_progress(job.folder, EpochReport(epoch=1, epochs=3, values={}))
        return "running"

    def stopped():
        assert (job.folder / STOP_FILE).exists()
        return finishing(job)()

    assert train_at(Engine("running", one_epoch, stopped), job, OWNER, lambda epoch: False).epochs

    def interrupt(_):
        raise KeyboardInterrupt

    other = make_job(arguments={"hidden": 8}, folder="other")
    other.folder.mkdir()
    append_progress(other.folder, EpochReport(epoch=1, epochs=3, values={}))
    engine = Engine("running")
    with pytest.raises(KeyboardInterrupt):
        train_at(engine, other, OWNER, interrupt)
    assert len(engine.cancelled) == 1
    assert threading.active_count() >= 1


@pytest.mark.parametrize(
    ("error", "is_cancelled", "num_cancelled"),
    [(SystemExit, True, 1), (SystemExit, False, 0), (UsageError, True, 0)],
)
def test_a_signal_cancels_the_job_only_if_the_flow_run_is_cancelled(make_job, error, is_cancelled, num_cancelled):
    def end():
        raise error

    engine = Engine(end)
    with pytest.raises(error):
        train_at(engine, make_job(), OWNER, is_cancelled=lambda: is_cancelled)
    assert len(engine.cancelled) == num_cancelled
