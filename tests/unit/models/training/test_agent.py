import threading
from multiprocessing import Pipe

from models.training.agent import ForkGate, run_alone


def test_a_lone_rank_asks_after_each_epoch_and_sends_its_result(make_job):
    ours, theirs = Pipe()
    epochs, results = [], []

    def caller():
        while not results:
            match ours.recv():
                case ("start", pid):
                    # An answer meant for a rank that is no more comes first and is passed over.
                    ours.send(("started", pid + 1, 9))
                    ours.send(("started", pid, 2))
                case ("epoch", pid, epoch):
                    epochs.append(epoch.epoch)
                    ours.send(("answer", pid + 1, False))
                    ours.send(("answer", pid, epoch.epoch < 2))
                case ("result", result):
                    results.append(result)

    with ours, theirs:
        thread = threading.Thread(target=caller)
        thread.start()
        run_alone([theirs], make_job(arguments={"hidden": 8}))
        thread.join()
    assert epochs == [1, 2]
    assert results[0].pruned
    assert results[0].restarts == 2


def test_ranks_wait_until_the_last_one_is_forked_at_each_start():
    gate = ForkGate()
    for start in (1, 2):
        rank = threading.Thread(target=gate.wait, args=(start, False), daemon=True)
        rank.start()
        rank.join(0.1)
        assert rank.is_alive()
        gate.wait(start, is_last=True)
        rank.join(60)
        assert not rank.is_alive()
