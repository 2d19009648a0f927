"""`loopline gc`: shows, or removes, what nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from flows.console import options
from tasks.host import stores

if TYPE_CHECKING:
    from tasks.gc.candidates import GarbageCandidate
    from tasks.gc.collect import Collection


@click.command()
@click.argument("project", required=False, shell_complete=options.complete_project)
@click.option("--delete", "is_delete", is_flag=True, help="Remove it; else only show what would go.")
@click.option("--why", "shows_reasons", is_flag=True, help="Show each thing that stays, and why.")
@options.as_json
def command(project: str | None, is_delete: bool, shows_reasons: bool, as_json: bool) -> None:
    """Show what nobody needs any more, of all projects or one, by kind; remove it with --delete.

    Every version that was ever champion stays, with its data, its records and its predictions; so does what a server
    uses, what is tried, and what a loop may go on with. The rest goes when it is old. A project whose loop runs is left
    out. The platform does the same once a day.

    Example: loopline gc flights --why

    Example: loopline gc --delete
    """
    from tasks.operations import collect_garbage

    workspace = stores.open_workspace()
    name = workspace.project(project).spec().name if project else None
    if is_delete:
        collection = collect_garbage.delete(workspace, name)
    else:
        _, collection = collect_garbage.listed(workspace, name)
    if as_json:
        options.print_json(_plain(collection))
        return
    click.echo(_table(collection))
    if shows_reasons:
        click.echo("\n".join(_reasons(collection.candidates)))
    for skipped, reason in collection.skipped.items():
        click.echo(f"{skipped}: nothing was removed: {reason}")
    if not is_delete:
        click.echo("nothing was removed: `loopline gc --delete` does it, `--why` says what stays")


def _table(collection: Collection) -> str:
    lines = [f"{'kind':<24}{'garbage':>16}{'kept':>16}{'removed':>12}"]
    for kind, candidates in collection.candidates.items():
        garbage = [candidate for candidate in candidates if not candidate.reason]
        needed = [candidate for candidate in candidates if candidate.reason]
        removed = _megabytes(collection.removed[kind]) if kind in collection.removed else "-"
        lines.append(f"{kind:<24}{_sum(garbage):>16}{_sum(needed):>16}{removed:>12}")
    return "\n".join(lines)


def _sum(candidates: Sequence[GarbageCandidate]) -> str:
    return f"{_megabytes(sum(candidate.size for candidate in candidates))} ({len(candidates)})"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def _reasons(candidates: Mapping[str, Sequence[GarbageCandidate]]) -> list[str]:
    return [
        f"{kind}: {candidate.project} {candidate.name}: {candidate.reason}"
        for kind, listed in candidates.items()
        for candidate in listed
        if candidate.reason
    ]


def _plain(collection: Collection) -> dict[str, object]:
    return {
        "kinds": {
            kind: [
                {
                    "project": candidate.project,
                    "name": candidate.name,
                    "bytes": candidate.size,
                    "reason": candidate.reason,
                }
                for candidate in candidates
            ]
            for kind, candidates in collection.candidates.items()
        },
        "removed": collection.removed,
        "skipped": collection.skipped,
    }
