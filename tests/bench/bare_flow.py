"""The least flow there is: what an event begins where nothing of ours is there."""

from prefect import flow


@flow
def nothing() -> None:
    """Do nothing."""
