"""A year of flights, month by month, against the running platform, which does the rest by itself.

January trains the first champion. Of each later month the flights are predicted as they are due, their labels come
afterwards, and then the month's file arrives. The platform validates, watches, decides, trains, judges, and promotes
or does not; this script only delivers and waits. One month comes with its units swapped, and is sent again mended.

    python infra/story/play.py --home .loopline/story --months 6

Everything happens in a workspace of its own (`--home`); the platform stays up to be looked at until it is told
`LOOPLINE_HOME=... loopline down`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).resolve().parent
CLONE = HERE.parents[1]
PROGRAM = Path(sys.executable).with_name("loopline")
LONGEST_S = 600.0
POLL_S = 1.0
ENDED = ("finished", "rejected", "failed")
LEAKS = ["arr_delay", "dep_delay", "dep_time", "arr_time", "air_time", "late"]
"""Columns that are not known before a flight has landed."""


@dataclass
class Player:
    """The workspace of the story, and the program in it."""

    home: Path

    @property
    def project(self) -> Path:
        """The project's folder."""
        return self.home / "projects" / "flights"

    def loopline(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Call the program as a user would.

        Raises:
            SystemExit: It failed; says with what words.
        """
        environment = {**os.environ, "LOOPLINE_HOME": str(self.home)}
        ended = subprocess.run([str(PROGRAM), *arguments], env=environment, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise SystemExit(
                f"loopline {' '.join(arguments)} ended with {ended.returncode}:\n{ended.stderr}{ended.stdout}"
            )
        return ended

    def status(self) -> dict[str, Any]:
        """What `loopline status flights --json` says of the project."""
        status: dict[str, Any] = json.loads(self.loopline("status", "flights", "--json").stdout)
        project: dict[str, Any] = status["projects"][0]
        return project

    def begin(self, january: pd.DataFrame) -> None:
        """The workspace with January's flights, the first model, and the platform."""
        (self.project / "months").mkdir(parents=True, exist_ok=True)
        (self.project / "project.yaml").write_text((HERE / "project.yaml").read_text())
        self.arrive("2013-01", january)
        self.loopline("run", "flights")
        ports = [f"--port={name}=0" for name in ("prefect", "mlflow", "overview", "optuna")]
        print(self.loopline("up", *ports).stdout, flush=True)

    def month(self, name: str, flights: pd.DataFrame) -> None:
        """A month passes: its flights are predicted, land, and are filed."""
        incoming = self.home / "incoming"
        incoming.mkdir(exist_ok=True)
        due, landed = incoming / f"{name}.parquet", incoming / f"{name}-landed.csv"
        flights.drop(columns=LEAKS).to_parquet(due, index=False)
        self.loopline("predict", "flights", str(due), "--id", "flight_id")
        flights[["flight_id", "late"]].to_csv(landed, index=False)
        self.loopline("label", "flights", str(landed), "--id", "flight_id")

    def arrive(self, name: str, flights: pd.DataFrame) -> None:
        """The month's file is there from one moment to the next, never half."""
        whole = self.project / f".{name}.parquet"
        flights.to_parquet(whole, index=False)
        whole.replace(self.project / "months" / f"{name}.parquet")

    def wait(self, before: dict[str, Any]) -> dict[str, Any]:
        """Until the platform has carried another loop round, or has refused its data.

        Raises:
            SystemExit: It did not within ten minutes.
        """
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            now = self.status()
            if now["began"] != before["began"] and now["state"] in ENDED:
                return now
            time.sleep(POLL_S)
        raise SystemExit(f"no loop ended within {LONGEST_S:g} s: look at `loopline status` in {self.home}")


def year(cache: Path, rows: int) -> dict[str, pd.DataFrame]:
    """The flights of each month that landed, `rows` of each drawn by lot, oldest first."""
    sys.path.insert(0, str(CLONE / "projects" / "flights"))
    from source import load

    from tasks.tools.sources import fetch

    flights = load(functools.partial(fetch, cache=cache)).dropna(subset=["late"])
    flights["flight_id"] = [f"f{number:06}" for number in range(len(flights))]
    months = flights.groupby(flights["time_hour"].dt.strftime("2013-%m"))
    return {
        str(name): month.sample(min(rows, len(month)), random_state=13).sort_values("time_hour", kind="stable")
        for name, month in months
        if str(name) == month["time_hour"].dt.strftime("%Y-%m").iloc[0]
    }


def swapped(flights: pd.DataFrame) -> pd.DataFrame:
    """The same flights from a system that measures in metres and degrees Celsius."""
    metres = (flights["distance"] * 1609.34).round().astype(flights["distance"].dtype)
    return flights.assign(distance=metres, temp=(flights["temp"] - 32) / 1.8)


def play(player: Player, months: dict[str, pd.DataFrame], swap: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Live through the months; gives what the platform made of each."""
    first, *later = months
    player.begin(months[first])
    yield first, player.status()
    for name in later:
        player.month(name, months[name])
        if name == swap:
            before = player.status()
            player.arrive(name, swapped(months[name]))
            yield f"{name}, units swapped", player.wait(before)
        before = player.status()
        player.arrive(name, months[name])
        yield name, player.wait(before)


def main() -> None:
    """Play, a line a month."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--home", type=Path, default=CLONE / ".loopline" / "story")
    parser.add_argument("--months", type=int, default=6)
    parser.add_argument("--rows", type=int, default=4000, help="flights of a month, drawn by lot")
    parser.add_argument("--swap", default="2013-03", help="the month that comes with its units swapped")
    args = parser.parse_args()
    months = year(CLONE / ".loopline" / "cache" / "sources", args.rows)
    chosen = {name: months[name] for name in list(months)[: args.months]}
    player = Player(args.home.resolve())
    for name, status in play(player, chosen, args.swap):
        reason = status["reasons"][0] if status["state"] == "finished" else status["light_reason"]
        print(f"{name:<24} champion v{status['champion']}  {reason}", flush=True)
    print(f"\nLook: LOOPLINE_HOME={player.home} loopline status")
    print(f"End:  LOOPLINE_HOME={player.home} loopline down --wait")


if __name__ == "__main__":
    main()
