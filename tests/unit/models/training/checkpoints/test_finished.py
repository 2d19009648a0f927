import pytest

from models.errors import TrainingError
from models.training.checkpoints.finished import difference, identity, read_finished
from models.training.job import WEIGHTS_FILE
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
