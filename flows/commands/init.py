"""`loopline init`: makes a repository that holds a team's own files only."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from flows.commands.new import copied, scaffolded
from flows.console import options
from tasks.host.workspace import Project, Workspace, keep_others_out

if TYPE_CHECKING:
    from tasks.operations.team_repository import TeamRepository


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=".")
@click.option("--from", "data", type=click.Path(path_type=Path), help="Begin with a project of this data file.")
@click.option("--target", help="The column of it to predict, or several: a,b; asked for in a terminal, else guessed.")
@click.option("--example", help="Begin with a copy of an example: table, texts, pictures, series and others.")
@click.option(
    "--docker", "has_docker", is_flag=True, help="Write an image and a compose file of the whole platform too."
)
@options.as_json
def command(
    folder: Path, data: Path | None, target: str | None, example: str | None, has_docker: bool, as_json: bool
) -> None:
    """Make FOLDER (default: this one) a repository for a team's models: projects, ignored data, CI, Loopline's version.

    It commits nothing, and overwrites no file. In such a repository it adds what an option asks for and is not there.

    Example: loopline init models --from customers.csv --target left

    Example: loopline init --docker
    """
    from tasks.operations.scaffold import name_in_example
    from tasks.operations.team_repository import begin, project_name

    if (data and example) or (target and not data):
        raise click.UsageError("give --from FILE, with or without --target, or --example NAME, or neither")
    summary = ""

    def make(workspace: Workspace) -> Project:
        nonlocal summary
        if data:
            project, summary = scaffolded(workspace, name, str(data), target)
        else:
            project, summary = copied(workspace, name, str(example))
        return project

    name = project_name(data.name.split(".")[0]) if data else name_in_example(example) if example else ""
    keep_others_out(Workspace(folder))
    repository = begin(folder, name, make if name else None, has_docker)
    commands = _next_commands(repository, has_docker)
    if as_json:
        options.print_json({**vars(repository), "summary": summary, "next": commands})
        return
    if not repository.written:
        click.echo(f"{repository.folder}: nothing to write")
    for verb, paths in (("wrote", repository.written), ("there already", repository.present)):
        if paths:
            click.echo(f"{verb}: {', '.join(paths)}")
    if summary:
        click.echo(f"projects/{name}: {summary}; look through its project.yaml")
    if not repository.has_git:
        click.echo("no git here: install it, then `git init`, for the history of your specs", err=True)
    click.echo("\n  ".join(["next:", *commands]))


def _next_commands(repository: TeamRepository, has_docker: bool) -> list[str]:
    """Return what the user runs next, in order."""
    commands = [] if repository.folder == Path.cwd() else [f"cd {shlex.quote(str(repository.folder))}"]
    if repository.written and repository.has_git:
        commands.append("git add . && git commit -m 'Begin with Loopline'")
    project = repository.project
    commands.append(f"loopline run {project}" if project else "loopline new NAME --from FILE.csv --target COLUMN")
    return [*commands, "docker compose up --build --detach"] if has_docker else commands
