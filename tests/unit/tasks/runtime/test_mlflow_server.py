"""The port of MLflow's page; serving it is tests/integration's."""

import socket

import pytest

from models.errors import StoreError
from tasks.runtime import mlflow_server


def test_a_port_that_is_taken_names_the_cure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(StoreError, match="choose another, or 0 for any"):
            mlflow_server._claim(taken.getsockname()[1])


def test_any_port_is_a_free_one() -> None:
    assert mlflow_server._claim(0) > 0
