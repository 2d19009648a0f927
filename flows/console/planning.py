"""Prints the planner's result: one line per plan, the recommended plan, and the command to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from models.planner.planning import PlanEstimate, PlanningResult

_GB = 1e9
_HEADS = ("plan", "ranks", "weights", "gradients", "optimiser", "activations", "needs", "step", "sends", "samples/s")


def print_planning(planning: PlanningResult, project: str) -> None:
    """Print the table, the recommendation with its reasons, and the assumptions of the figures."""
    machine = planning.machine
    click.echo(
        f"{planning.parameters:,} parameters on {machine.name}: {machine.world_size} x {machine.device}, "
        f"{machine.memory_gb:.3g} GB each\n"
    )
    weighed = [estimate for estimate in planning.estimates if not estimate.obstacle]
    head, *lines = _aligned([_HEADS, *(_row(estimate) for estimate in weighed)])
    click.echo(head)
    for line, estimate in zip(lines, weighed, strict=True):
        click.secho(line if estimate.fits else f"{line}  does not fit", dim=not estimate.fits)
    for estimate in planning.estimates:
        if estimate.obstacle:
            click.secho(f"{_name(estimate)}: {estimate.obstacle}", dim=True)
    click.echo()
    if planning.best:
        settings = " ".join(f"-s {key}={value}" for key, value in planning.best.candidate.overrides().items())
        click.secho(f"Take {_name(planning.best)}: loopline run {project} {settings}", fg="green", bold=True)
    for reason in planning.reasons:
        click.echo(f"  {reason}")
    click.secho(
        f"\n  GB of one rank at its peak; seconds at {machine.efficiency:.0%} of the peak arithmetic, "
        f"{machine.efficiency_origin}; "
        f"{machine.within_gb_per_s:g} GB/s within a node, {machine.between_gb_per_s:g} between.",
        dim=True,
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines, names aligned left and figures aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _name(estimate: PlanEstimate) -> str:
    candidate = estimate.candidate
    parts = [candidate.parallel]
    parts += [f"tensor {candidate.tensor}"] if candidate.tensor > 1 else []
    parts += [f"stages {candidate.stages}"] if candidate.stages > 1 else []
    parts += [f"replicas {candidate.replicas}"] if candidate.replicas > 1 else []
    parts += [f"accumulate {candidate.accumulate}"] if candidate.accumulate > 1 else []
    parts += [f"recompute {candidate.recompute}"] if candidate.recompute != "none" else []
    return ", ".join(parts)


def _row(estimate: PlanEstimate) -> tuple[str, ...]:
    memory, duration = estimate.memory, estimate.duration
    assert memory is not None
    activations = memory.activations + memory.gathered + memory.host + memory.holes
    sizes = (memory.weights, memory.gradients, memory.optimiser, activations)
    times = ("", "", "")
    if duration:
        times = (f"{duration.step_s:.3g} s", f"{duration.sent_bytes / _GB:.3g} GB", f"{estimate.samples_per_s:,.4g}")
    return (
        _name(estimate),
        str(estimate.candidate.ranks),
        *(f"{size / _GB:.3g}" for size in sizes),
        f"{estimate.needed_gb:.3g} GB",
        *times,
    )
