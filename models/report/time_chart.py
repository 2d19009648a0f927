"""Small charts over time as inline SVG, drawn without matplotlib: a server renders them in a millisecond.

They have classes and no colours, so that the stylesheet of the page sets light or dark colours.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup, escape

from models.metrics.limits import within_limits
from models.monitoring.report import WindowReport
from models.report.pages import show

WIDTH, HEIGHT = 700.0, 210.0
LEFT, RIGHT, TOP, BOTTOM = 68.0, 12.0, 12.0, 30.0
SPARK_WIDTH, SPARK_HEIGHT = 320.0, 36.0
MOST_WINDOWS = 200
MOST_SPARK = 60
DAY_S = 86400.0
SPANS = {3600.0: "hour", DAY_S: "day", 7 * DAY_S: "week"}
MOST_BARS = 60

Point = tuple[float, float]


@dataclass(frozen=True)
class AxisScale:
    """Maps values to coordinates of the chart: `low` to `begin`, `high` to `end`."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Return the coordinate of a value, to a tenth of a unit."""
        span = self.high - self.low or 1.0
        return round(self.begin + (value - self.low) / span * (self.end - self.begin), 1)


def metric_chart(windows: Sequence[WindowReport], metric: str, band: tuple[float, float] | None = None) -> Markup:
    """Draw each window's realised metric with its interval, the estimate dashed, and the verdict's interval behind.

    Windows have equal distances, however long each took to fill. Empty if no window has a metric or an estimate.
    """
    drawn = [window for window in windows if window.realised or window.estimated is not None][-MOST_WINDOWS:]
    values = [value for window in drawn for value in _values(window)]
    if not values:
        return Markup("")
    low, high = within_limits(metric, *_padded([*values, *(band or ())]))
    up, across = AxisScale(low, high, HEIGHT - BOTTOM, TOP), _places(len(drawn), LEFT + 6, WIDTH - RIGHT - 6)
    placed = list(zip(across, drawn, strict=True))
    estimated = [(x, up.at(window.estimated)) for x, window in placed if window.estimated is not None]
    measured = [(x, window, value) for x, window in placed if (value := _measured(window)) is not None]
    parts = [_grid(up), _times([window.end for window in drawn])]
    parts += [_band(up, *band)] if band else []
    parts += [_line("second", estimated), _line("first", [(x, up.at(value)) for x, _, value in measured])]
    parts += [_interval(x, window, value, up) for x, window, value in measured]
    last = f"; the last is {show(measured[-1][2])}" if measured else ""
    return _picture(f"{metric} over {len(drawn)} windows{last}", parts)


def volume_chart(windows: Sequence[WindowReport]) -> Markup:
    """Draw predictions by hour, day or week; a window counts at its end. Empty for fewer than two bars."""
    if not windows:
        return Markup("")
    spread = max(window.end for window in windows) - min(window.end for window in windows)
    span = next((span for span in SPANS if spread <= MOST_BARS * span), 7 * DAY_S)
    counts: Counter[int] = Counter()
    for window in windows:
        counts[int(window.end // span)] += window.num_predictions
    first, last = min(counts), max(counts) + 1
    if last - first < 2:
        return Markup("")
    across, up = AxisScale(first, last, LEFT, WIDTH - RIGHT), AxisScale(0.0, max(counts.values()), HEIGHT - BOTTOM, TOP)
    bars = [_bar(across.at(place), across.at(place + 1), up, count, SPANS[span]) for place, count in counts.items()]
    label = f"{show(sum(counts.values()))} predictions, by {SPANS[span]}"
    return _picture(label, [_grid(up), _times([place * span for place in range(first, last + 1)]), *bars])


def spark(windows: Sequence[WindowReport], metric: str) -> Markup:
    """Draw the realised metric as one small line, decayed windows as red dots; empty for fewer than two windows."""
    points = [(window, value) for window in windows if (value := _measured(window)) is not None][-MOST_SPARK:]
    if len(points) < 2:
        return Markup("")
    up = AxisScale(*within_limits(metric, *_padded([value for _, value in points])), SPARK_HEIGHT - 4, 4)
    across = _places(len(points), 4, SPARK_WIDTH - 4)
    line = _line("first", [(x, up.at(value)) for x, (_, value) in zip(across, points, strict=True)])
    decayed = [(x, up.at(value)) for x, (window, value) in zip(across, points, strict=True) if window.decayed]
    label = f"{metric} of the last {len(points)} windows, now {show(points[-1][1])}"
    return Markup('<svg class="spark" viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>').format(
        SPARK_WIDTH, SPARK_HEIGHT, label, _joined([line, *(_dot("bad", x, y) for x, y in decayed)])
    )


def ticks(low: float, high: float) -> list[float]:
    """Return at most five round values between two: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / 4 or 1.0
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _measured(window: WindowReport) -> float | None:
    return window.realised.value if window.realised else None


def _values(window: WindowReport) -> list[float]:
    realised = window.realised
    values = [realised.value, realised.low, realised.high] if realised else []
    return [value for value in (*values, window.estimated) if value is not None]


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    pad = (high - low) * 0.08 or abs(high) * 0.05 or 0.5
    return low - pad, high + pad


def _places(count: int, begin: float, end: float) -> list[float]:
    """Return evenly spaced positions from `begin` to `end`; a single one is in the middle."""
    if count == 1:
        return [(begin + end) / 2]
    return [round(begin + (end - begin) * number / (count - 1), 1) for number in range(count)]


def _band(up: AxisScale, low: float, high: float) -> Markup:
    height = max(1.0, round(up.at(low) - up.at(high), 1))
    return Markup('<rect class="band" x="{:g}" y="{}" width="{:g}" height="{}"/>').format(
        LEFT, up.at(high), WIDTH - LEFT - RIGHT, height
    )


def _bar(begin: float, end: float, up: AxisScale, count: int, span: str) -> Markup:
    width, height = max(1.0, round(end - begin - 1, 1)), round(HEIGHT - BOTTOM - up.at(count), 1)
    return Markup('<rect class="bar" x="{}" y="{}" width="{}" height="{}"><title>{} in that {}</title></rect>').format(
        begin, up.at(count), width, height, show(count), span
    )


def _interval(x: float, window: WindowReport, value: float, up: AxisScale) -> Markup:
    css_class = "bad" if window.decayed else "first"
    dot = _dot(css_class, x, up.at(value), f"{show(value)}, version {window.version}, to {_moment(window.end)}")
    realised = window.realised
    if realised is None or realised.low is None or realised.high is None:
        return dot
    return (
        Markup('<path class="{}" d="M{} {}V{}"/>').format(css_class, x, up.at(realised.low), up.at(realised.high)) + dot
    )


def _dot(css_class: str, x: float, y: float, title: str = "") -> Markup:
    tooltip = Markup("<title>{}</title>").format(title) if title else Markup("")
    return Markup('<circle class="{} dot" cx="{}" cy="{}" r="3">{}</circle>').format(css_class, x, y, tooltip)


def _line(css_class: str, points: Sequence[Point]) -> Markup:
    path = "L".join(f"{x:g} {y:g}" for x, y in points)
    return (
        Markup('<path class="{}" stroke-width="2" d="M{}"/>').format(css_class, path) if len(points) > 1 else Markup("")
    )


def _grid(up: AxisScale) -> Markup:
    return _joined(
        Markup('<path class="grid" d="M{:g} {}H{:g}"/><text x="{:g}" y="{}" text-anchor="end">{}</text>').format(
            LEFT, up.at(value), WIDTH - RIGHT, LEFT - 6, up.at(value) + 4, _short(value)
        )
        for value in ticks(up.low, up.high)
    )


def _times(times: Sequence[float]) -> Markup:
    """Draw the first, the middle and the last time below the chart; with the hour if all lie within two days."""
    marks = [(LEFT, "start", times[0]), ((LEFT + WIDTH - RIGHT) / 2, "middle", times[len(times) // 2])]
    marks.append((WIDTH - RIGHT, "end", times[-1]))
    form = "%d %b %H:%M" if times[-1] - times[0] < 2 * DAY_S else "%d %b %Y"
    return _joined(
        Markup('<text x="{:g}" y="{:g}" text-anchor="{}">{}</text>').format(x, HEIGHT - 8, anchor, _moment(time, form))
        for x, anchor, time in (marks if len(times) > 1 else marks[1:2])
    )


def _moment(time: float, form: str = "%d %b %H:%M") -> str:
    return datetime.fromtimestamp(time, UTC).strftime(form)


def _short(value: float) -> str:
    """Return `1.5M` for numbers that do not fit beside the chart."""
    return f"{value / 1e6:g}M" if abs(value) >= 1e6 else str(show(value))


def _picture(label: str, parts: Iterable[Markup]) -> Markup:
    return Markup('<svg viewBox="0 0 {:g} {:g}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, label, _joined(parts)
    )


def _joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(escape(part) for part in parts)
