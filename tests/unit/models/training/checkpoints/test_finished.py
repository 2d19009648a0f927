import json

import pytest

from models.errors import TrainingError
from models.training.checkpoints.finished import difference, identity, read_finished, take_over
from models.training.job import RESULT_FILE, WEIGHTS_FILE
from models.training.rank import run_job


def test_a_finished_job_is_known_by_result_and_weights(make_job):
    job = make_job(arguments={"hidden": 8})
    assert read_finished(job) is None
    result = run_job(job)
    assert read_finished(job) == result
    weights = job.folder / WEIGHTS_FILE
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert read_finished(job) is None
    assert run_job(job).weights_sha256 == result.weights_sha256


def test_a_folder_of_another_job_is_refused(make_job):
    run_job(make_job(arguments={"hidden": 8}))
    with pytest.raises(TrainingError, match=r"train.lr: got 0.01, expected 0.5"):
        run_job(make_job(arguments={"hidden": 8}, lr=0.5))


def test_ranks_and_threads_do_not_make_another_job(make_job):
    one, two = make_job(), make_job(ranks=2, threads=3, max_restarts=0)
    assert difference(identity(one), identity(two)) == ""
    assert difference(identity(one), identity(make_job(epochs=9))) == "train.epochs: got 3, expected 9"


def test_what_the_training_of_a_net_does_not_use_does_not_make_another_job(make_job):
    trial, final = make_job(refit=False), make_job(refit=True)
    assert difference(identity(trial), identity(final)) == ""
    trees = [
        make_job(net="trees", arguments={"rounds": 3}, refit=refit, lr=lr) for refit, lr in ((False, 0.1), (True, 0.5))
    ]
    assert difference(identity(trees[0]), identity(trees[1])) == "train.refit: got False, expected True"


def test_the_result_of_an_equal_job_is_taken_over_and_its_costs_are_counted_once(make_job):
    other = run_job(make_job(arguments={"hidden": 9}, folder="other"))
    trial = make_job(arguments={"hidden": 8}, folder="trial")
    done = run_job(trial)
    job = make_job(arguments={"hidden": 8}, folder="final")
    folders = [job.folder.parent / name for name in ("none", "other", "trial")]
    taken = take_over(job, folders)
    assert taken is not None
    assert (taken.weights_sha256, taken.epochs, taken.value) == (done.weights_sha256, done.epochs, done.value)
    assert (taken.seconds, taken.costs, taken.speeds) == (0.0, None, [])
    assert "trial" in taken.environment["chosen"]["fit"]
    assert read_finished(job) == taken == run_job(job), "nothing is trained again"
    assert take_over(job, folders) is None, "it is finished already"
    assert other.weights_sha256 != done.weights_sha256


def test_what_was_stopped_or_damaged_or_has_other_settings_is_not_taken_over(make_job):
    trial = make_job(arguments={"hidden": 8}, folder="trial")
    stopped = run_job(trial, lambda epoch: epoch.epoch < 2)
    assert stopped.pruned
    assert take_over(make_job(arguments={"hidden": 8}, folder="final"), [trial.folder]) is None
    (trial.folder / RESULT_FILE).write_text(json.dumps({**stopped.model_dump(mode="json"), "pruned": False}))
    assert take_over(make_job(arguments={"hidden": 8}, folder="final", lr=0.5), [trial.folder]) is None
    (trial.folder / WEIGHTS_FILE).write_bytes(b"torn")
    assert take_over(make_job(arguments={"hidden": 8}, folder="final"), [trial.folder]) is None
