"""Progress of a replay, for a person who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from models.backtest.periods import Period, RowRange
from tasks.loop.loop import Reporter


class ReplayProgress:
    """Reports a replay's progress: periods done over all policies, and about how long trainings will still take.

    Args:
        report: The reporter that shows it.
        moments: Known rows at each moment at which a policy may train, without duplicates.
        num_policies: Number of replayed policies.
        num_periods: Number of periods of each policy.
    """

    def __init__(self, report: Reporter, moments: Sequence[int], num_policies: int, num_periods: int) -> None:
        self._report = report
        self._owed = set(moments)
        self._total = num_policies * num_periods
        self._count = 0
        self._policy = ""
        self._s_a_row: float | None = None

    def under(self, policy: str) -> None:
        """Note that a policy's replay begins."""
        self._policy = policy

    def period(self, period: Period) -> None:
        """Count a replayed period and report it."""
        self._count += 1
        self._tell(period.name)

    def training(self, rows: RowRange) -> None:
        """Report that a training begins."""
        self._tell(f"training on {rows.stop - rows.first:,} rows")

    def trained(self, rows: RowRange, seconds: float) -> None:
        """Note a finished training and its duration in seconds."""
        self._owed.discard(rows.stop)
        self._s_a_row = seconds / (rows.stop - rows.first)  # the latest: the first also waited for torch's import

    def eta_s(self) -> float | None:
        """Return the seconds that all possible remaining trainings would take; None before the first training."""
        return None if self._s_a_row is None else sum(self._owed) * self._s_a_row

    def _tell(self, what: str) -> None:
        left = self.eta_s()
        eta = f", at most about {left:.0f} s of training left" if left else ""
        self._report.progress("backtest", self._count, self._total, f"{self._policy} {what}{eta}")
