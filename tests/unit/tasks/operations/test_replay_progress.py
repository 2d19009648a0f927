"""A person who waits sees the policy, the period, and what training may still take."""

from __future__ import annotations

from models.backtest.periods import Period, RowRange
from tasks.loop.loop import SilentReporter
from tasks.operations.replay_progress import ReplayProgress


class Heard(SilentReporter):
    def __init__(self) -> None:
        self.told: list[tuple[int, int, str]] = []

    def progress(self, name: str, done: int, total: int, detail: str = "") -> None:
        self.told.append((done, total, detail))


def test_it_counts_the_periods_of_all_policies_and_reckons_by_the_latest_training():
    heard = Heard()
    progress = ReplayProgress(heard, [100, 200, 400], num_policies=2, num_periods=2)
    progress.under("monthly")
    assert progress.eta_s() is None
    progress.training(RowRange(0, 100))
    progress.trained(RowRange(0, 100), 10.0)
    progress.period(Period("2020-02", 0.0, 1.0, 100, 200))
    assert progress.eta_s() == 60.0
    assert heard.told == [
        (0, 4, "monthly training on 100 rows"),
        (1, 4, "monthly 2020-02, at most about 60 s of training left"),
    ]
    progress.trained(RowRange(0, 200), 2.0)
    assert progress.eta_s() == 4.0
    progress.trained(RowRange(0, 400), 4.0)
    progress.period(Period("2020-03", 1.0, 2.0, 200, 300))
    assert heard.told[-1] == (2, 4, "monthly 2020-03")
