"""`loopline completion`: prints what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "loopline"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion of commands and options for SHELL.

    Put the line into the shell's start-up file: ~/.bashrc, ~/.zshrc; for fish into ~/.config/fish/config.fish, as
    `loopline completion fish | source`.

    Example: eval "$(loopline completion bash)"

    Example: eval "$(loopline completion zsh)"
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None  # click has these three
    click.echo(kind(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())
