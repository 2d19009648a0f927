"""Prints what the glue costs as one table and keeps it as JSON: `make bench`, or `python -m tests.bench training`."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench import loop

PARTS = (
    "command",
    "loop",
    "search",
    "training",
    "engine",
    "monitoring",
    "platform",
    "idle",
    "history",
    "serving",
    "stores",
)
_HELP = f"some of {', '.join(PARTS)}; default: all of these"


@dataclass(frozen=True)
class Figure:
    """One line of the table; `least` budgets are passed from above, the others from below."""

    name: str
    unit: str
    ours: float
    budget: float
    bare: float | None = None
    judged: float | None = None
    least: bool = False

    @property
    def value(self) -> float:
        """What the budget is about: the ratio where one is given, else our own figure."""
        return self.ours if self.judged is None else self.judged

    @property
    def is_met(self) -> bool:
        """True within the budget."""
        return self.value >= self.budget if self.least else self.value <= self.budget


def command_figures() -> list[Figure]:
    """The command line by itself."""
    return [Figure("loopline --help", "s wall", loop.help_wall_s(), 0.3)]


def loop_figures(place: Path) -> list[Figure]:
    """Whole loops over flights."""
    ran = loop.loops(place)
    new, again = ran.bare_new, ran.bare_again
    return [
        Figure("flights, server up", "CPU-s", ran.server_up.cpu_s, 1.15 * again.cpu_s + 4, again.cpu_s),
        Figure("flights, embedded", "CPU-s", ran.embedded.cpu_s, 1.15 * new.cpu_s + 10, new.cpu_s),
        Figure("  of it the server", "CPU-s", ran.embedded.servers_cpu_s, float("inf")),
        Figure("flights, embedded", "s wall", ran.embedded.wall_s, float("inf"), new.wall_s),
        _ratio("peak memory, embedded", "MB", ran.embedded.peak_mb, new.peak_mb, 1.3),
        _ratio("peak memory, server up", "MB", ran.server_up.peak_mb, again.peak_mb, 1.3),
        Figure("flights, nothing to do", "s wall", ran.up_to_date_wall_s, 1.0),
        Figure("  servers it started", "", ran.up_to_date_servers, 0),
    ]


def search_figures(place: Path) -> list[Figure]:
    """Two workers against one: how many times as fast."""
    one, two = loop.search_wall_s(place, 1), loop.search_wall_s(place, 2)
    return [Figure("search, 2 workers against 1", "s wall", two, 1.7, one, one / two, least=True)]


def training_figures() -> list[Figure]:
    """The engine against loops by hand."""
    from tests.bench import training

    return [
        Figure(f"training {name}", "samples/CPU-s", each.ours, 0.97, each.bare, each.ratio, least=True)
        for name, each in training.run().items()
    ]


def engine_figures() -> list[Figure]:
    """The engine by itself; what needs a GPU or another library is named where it is left out."""
    from tests.bench import engine, others

    one, two = engine.ranks_speedup()
    figures = [
        Figure("checkpoint every epoch, MLP", "of the time", engine.checkpoint_share(), 0.03),
        Figure("resume after a kill, 1 rank", "s wall", engine.resume_s(1), 2.0),
        Figure("resume after a kill, 2 ranks", "s wall", engine.resume_s(2), 2.0),
        Figure("2 ranks against 1, transformer", "samples/s", two, 1.7, one, two / one, least=True),
    ]
    for name, speed in engine.on_a_gpu().items():
        figures.append(Figure(f"transformer on a GPU, {name}", "samples/s", speed.samples_per_s, float("inf")))
        if speed.mfu is not None:
            figures.append(Figure("  of the peak (MFU)", "", speed.mfu, float("inf")))
    ours, theirs = others.compare()
    return figures + [
        Figure(f"training MLP, {name}", "samples/CPU-s", each, float("inf"), ours) for name, each in theirs.items()
    ]


def monitoring_figures() -> list[Figure]:
    """A window of 1e7 predictions of 13 features."""
    from tests.bench import monitoring

    watched = monitoring.monitoring_window()
    return [
        Figure("monitor 1e7 rows, one feature", "CPU-s", watched.feature_cpu_s, 1.0),
        Figure("  of 13 features, ids and all", "CPU-s", watched.window_cpu_s, float("inf")),
        Figure("  peak memory", "MB", watched.peak_mb, 500),
        Figure("  of it before the first row", "MB", watched.bare_mb, float("inf")),
    ]


def platform_figures(place: Path) -> list[Figure]:
    """The platform of an empty workspace."""
    from tests.bench import platform

    took = platform.measured(place)
    bare = took.bare
    return [
        Figure("up, all stores new", "s wall", took.first_up_s, float("inf"), bare.first_up_s),
        Figure("up, healthy", "s wall", took.up_s, 15.0, bare.up_s),
        Figure("down", "s wall", took.down_s, float("inf")),
        _ratio("event to running flow", "s wall", took.event_s, bare.event_s, 1.25),
        Figure("  bare Prefect's own interval", "s wall", took.event_s, float("inf"), bare.event_default_s),
    ]


def idle_figures(place: Path) -> list[Figure]:
    """The platform of 25 projects at rest."""
    from tests.bench import idle

    used = idle.measured(place / "idle")
    return [
        Figure("platform at rest, 25 projects", "CPU-s a minute", used.cpu_s, 2.7),
        Figure("  memory (PSS)", "MB", used.pss_mb, 560),
        Figure("up again, 25 projects", "CPU-s of its own", used.up_again_cpu_s, float("inf"), used.up_cpu_s),
    ]


def history_figures(place: Path) -> list[Figure]:
    """Looking at a project with 10,000 loops on record."""
    from tests.bench import history

    looked = history.looks(place)
    return [
        Figure("status, 10,000 loops on record", "s wall", looked.status_s, 1.0),
        Figure("  the first look after a loop", "s wall", looked.status_first_s, float("inf")),
        Figure("plan, 10,000 loops on record", "s wall", looked.plan_s, 1.0),
        Figure("overview page, 10,000 loops", "s wall", looked.page_s, 1.0),
        Figure("status, 100 projects", "s wall", looked.status_of_many_s, 1.0),
    ]


def serving_figures(place: Path) -> list[Figure]:
    """One model behind our server, behind one that does nothing else, and behind MLflow's."""
    from tests.bench import serving
    from tests.bench.swapping import swaps_under_load

    got = serving.compared(place)
    one, theirs, many = got.ours[1], got.theirs[1], serving.MANY
    log_share = got.log_us / (one.cpu_us - got.log_us)
    swapped, (probe_ms, longest_ms) = serving.swapped(place), serving.probe_ms(place)
    spread = swaps_under_load(place / "workers")
    unlimited = float("inf")
    return [
        _ratio("serve, one row, bare call", "CPU us", one.cpu_us, got.bare_us, 13),
        _ratio("serve, one row, MLflow's server", "CPU us", one.cpu_us, theirs.cpu_us, 0.2),
        _ratio("serve, one client, MLflow's server", "ms p50", one.p50_ms, theirs.p50_ms, 0.5),
        Figure(f"serve, {many} clients, plain starlette", "CPU us", got.ours[many].cpu_us, 1.6,
               got.plain[many].cpu_us, got.of_plain[1]),
        Figure("  behind nginx, with its CPU", "CPU us", got.behind[many].cpu_us, 1.85,
               got.plain[many].cpu_us, got.behind_of_plain),
        Figure(f"  {serving.ROWS:,} rows a request", "of its CPU", got.of_plain[serving.ROWS], 2.0),
        Figure(f"  {many} clients", "requests/s", got.ours[many].per_s, unlimited, got.plain[many].per_s),
        Figure("  the prediction log", "of the rest", log_share, 0.25),
        Figure("serve, start to ready", "s wall", got.ready_s, 2.0, got.their_ready_s),
        _ratio("serve, memory, of MLflow's server", "MB", got.memory_mb, got.their_memory_mb, 0.25),
        Figure(f"{swapped.swaps} swaps under load, failed or mixed", "of answers", swapped.failed + swapped.mixed, 0),
        Figure("  answers meanwhile", "", swapped.answers, unlimited),
        Figure(f"{spread['swaps']} swaps over two workers, failed or late", "of answers",
               spread["failed"] + spread["late"], 0),
        Figure("  from the registry to the swap", "s median", spread["seconds"], 2.0),
        Figure(f"probes beside {many} clients of {serving.MOST_ROWS:,} rows", "ms, longest", longest_ms, 100),
        Figure("  median", "ms", probe_ms, unlimited),
        Figure("memory after 1e6 refused requests", "MB more", serving.errors_growth_mb(place), 5),
    ]  # fmt: skip


def store_figures(place: Path) -> list[Figure]:
    """A loop of penguins with its bytes on S3."""
    from tests.bench import stores

    got, unlimited = stores.compared(place), float("inf")
    return [
        Figure("penguins, Postgres", "CPU-s", got.on_postgres.cpu_s, unlimited, got.local.cpu_s),
        Figure("penguins, Postgres and S3", "CPU-s", got.on_s3.cpu_s, unlimited, got.on_postgres.cpu_s),
        Figure("penguins, Postgres and S3", "s wall", got.on_s3.wall_s, unlimited, got.on_postgres.wall_s),
        Figure("  uploaded", "MB", got.uploaded_mb, unlimited),
        Figure("  objects", "", got.objects, unlimited),
        Figure("  until S3 is first reached", "s wall", got.first_use_s, unlimited),
        Figure("  upload of all steps", "s wall", got.upload_s, unlimited),
        Figure("  fetch of all steps", "s wall", got.fetch_s, unlimited),
        Figure("judged anew, on an emptied disk", "CPU-s", got.emptied_after.cpu_s, unlimited, got.local_after.cpu_s),
        Figure(
            "judged anew, on an emptied disk", "s wall", got.emptied_after.wall_s, unlimited, got.local_after.wall_s
        ),
    ]


def show(figures: list[Figure]) -> None:
    """Print the table."""
    table = Table("figure", "unit", "ours", "bare", "ratio", "budget", "")
    for column in table.columns[2:6]:
        column.justify = "right"
    for one in figures:
        table.add_row(
            one.name,
            one.unit,
            _short(one.ours),
            _short(one.bare),
            _short(one.ours / one.bare if one.bare and one.judged is None else one.judged),
            ("≥ " if one.least else "≤ ") + _short(one.budget) if one.budget != float("inf") else "",
            "" if one.budget == float("inf") else "ok" if one.is_met else "over",
        )
    Console().print(table)


def main() -> None:
    """Measure what is asked for, print it, keep it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help=_HELP)
    parts = parser.parse_args().parts or PARTS
    for line in loop.spec_differences():
        Console().print(f"[yellow]bare_flights.py and the spec differ: {line}")
    load_before = os.getloadavg()[0]
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="loopline-bench-") as folder:
        place = Path(folder)
        made = {
            "command": command_figures,
            "loop": lambda: loop_figures(place),
            "search": lambda: search_figures(place),
            "training": training_figures,
            "engine": engine_figures,
            "monitoring": monitoring_figures,
            "platform": lambda: platform_figures(place),
            "idle": lambda: idle_figures(place),
            "history": lambda: history_figures(place),
            "serving": lambda: serving_figures(place),
            "stores": lambda: store_figures(place),
        }
        for part in parts:
            figures += made[part]()
    show(figures)
    Console().print(f"{os.cpu_count()} cores; load {load_before:.1f} before, {os.getloadavg()[0]:.1f} after")
    kept = _keep(figures, load_before)
    Console().print(f"kept in {kept}")


def _ratio(name: str, unit: str, ours: float, bare: float, most: float) -> Figure:
    return Figure(name, unit, ours, most, bare, ours / bare)


def _short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _keep(figures: list[Figure], load: float) -> Path:
    """Write `.loopline/bench/<date>.json`."""
    now = datetime.now(UTC)
    path = loop.ROOT / ".loopline" / "bench" / f"{now:%Y-%m-%dT%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        {**asdict(one), "budget": None if one.budget == float("inf") else one.budget, "met": one.is_met}
        for one in figures
    ]
    document = {"when": now.isoformat(), "cores": os.cpu_count(), "load_before": load, "figures": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")
    return path


if __name__ == "__main__":
    main()
