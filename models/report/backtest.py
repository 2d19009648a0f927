"""The backtest's page: the recommended retraining policy, and the result of each policy."""

from __future__ import annotations

import math

from models.backtest.periods import iso
from models.backtest.regret import FEW_PERIODS, Backtest, PolicyRegret
from models.report.backtest_figures import loops_over_time, metric_over_time, regrets, spent
from models.report.card import Figure
from models.report.pages import render
from models.triggers.signal import clock

MOST_WAITS = 60


def render_backtest(result: Backtest) -> str:
    """Return the page as one self-contained HTML document: no script, no external resources."""
    by_policy = {regret.policy: regret for regret in result.policy_regrets}
    return render(
        "backtest.html.j2",
        result=result,
        by_policy=by_policy,
        light="green" if _is_clear(result) else "amber",
        pictures=_pictures(result),
        courses={course.policy: course for course in result.courses},
        when=clock(result.made_at) if result.made_at else "",
        date=iso,
        rounded=rounded,
        most_waits=MOST_WAITS,
    )


def rounded(value: float | None, like: PolicyRegret) -> str:
    """Return a difference of metrics with as many decimals as the policy's mean has in four digits."""
    if value is None:
        return "–"
    decimals = max(0, 3 - math.floor(math.log10(abs(like.mean.value or 1.0))))
    text = f"{value:.{decimals}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{decimals}f}"


def _is_clear(result: Backtest) -> bool:
    """Return True if each cheaper policy is shown to be worse, over enough periods."""
    chosen = next(regret for regret in result.policy_regrets if regret.policy == result.recommended)
    cheaper = [regret for regret in result.policy_regrets if regret.device_seconds < chosen.device_seconds]
    return len(result.periods) >= FEW_PERIODS and all((regret.regret.low or 0.0) > 0 for regret in cheaper)


def _pictures(result: Backtest) -> list[Figure]:
    better = "more" if result.direction == "maximize" else "less"
    return [
        Figure(
            f"{result.metric} of whichever model served",
            f"Each period's own rows, predicted before their labels were known; {better} is better. "
            f"Bars: {result.confidence:.0%} interval of resampled rows. A ring: a new champion served from here on.",
            metric_over_time(result),
        ),
        Figure(
            "Loops run, won and lost",
            "At the end of each period: a loop whose model was promoted, one whose verdict was lost, one that failed.",
            loops_over_time(result),
        ),
        Figure(
            "Regret against the best policy in hindsight",
            "Loss of the mean metric, with the interval of a paired bootstrap over periods and rows; "
            "left of the line is within judge.margin.",
            regrets(result),
        ),
        Figure(
            "What it cost, what it gained",
            "Device-seconds of the loops after the first, and the mean metric; up and to the left is better.",
            spent(result),
        ),
    ]
