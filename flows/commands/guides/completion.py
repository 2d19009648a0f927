"""`loopline completion`: prints what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "loopline"
ZSH_FIRST = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }"
"""A zsh whose start-up file has not called `compinit` knows no completion; this line calls it."""


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """Print the completion of commands, options and projects for SHELL.

    Put the line into the shell's start-up file: ~/.bashrc, ~/.zshrc; for fish into ~/.config/fish/config.fish, as
    `loopline completion fish | source`.

    Example: eval "$(loopline completion bash)"

    Example: eval "$(loopline completion zsh)"
    """
    kind = get_completion_class(shell)
    root = click.get_current_context().find_root().command
    assert kind is not None  # click has these three
    source = kind(root, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source()
    if shell == "zsh":  # `#compdef` stays the first line, for those who put it into a folder of $fpath
        source = source.replace("\n", f"\n\n{ZSH_FIRST}\n", 1)
    click.echo(source)
