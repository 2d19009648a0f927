"""The progress of a replay, for a person who waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from models.backtest.periods import Period, RowRange
from tasks.loop.loop import Reporter


class ReplayProgress:
    """Reports the progress of a replay: periods of all policies, and an estimate of the remaining time.

    Args:
        report: Receives the progress.
        moments: Rows that are known at each moment at which a policy may train, each once.
        num_policies: How many policies are replayed.
        num_periods: How many periods each lives through.
    """

    def __init__(self, report: Reporter, moments: Sequence[int], num_policies: int, num_periods: int) -> None:
        self._report = report
        self._owed = set(moments)
        self._total = num_policies * num_periods
        self._count = 0
        self._policy = ""
        self._s_a_row: float | None = None

    def under(self, policy: str) -> None:
        """A policy's replay begins."""
        self._policy = policy

    def period(self, period: Period) -> None:
        """A period is lived through."""
        self._count += 1
        self._tell(period.name)

    def training(self, rows: RowRange) -> None:
        """A training begins."""
        self._tell(f"training on {rows.stop - rows.first:,} rows")

    def trained(self, rows: RowRange, seconds: float) -> None:
        """A training was made, and took so long."""
        self._owed.discard(rows.stop)
        self._s_a_row = seconds / (rows.stop - rows.first)  # the first also waited for torch: the latest says more

    def eta_s(self) -> float | None:
        """Seconds of all trainings that may still be made, were they all; None before the first."""
        return None if self._s_a_row is None else sum(self._owed) * self._s_a_row

    def _tell(self, what: str) -> None:
        left = self.eta_s()
        eta = f", at most about {left:.0f} s of training left" if left else ""
        self._report.progress("backtest", self._count, self._total, f"{self._policy} {what}{eta}")
