"""Which addresses are of one server, as far as a secret is concerned."""

import pytest

from tasks.host.http_client import is_same_server


@pytest.mark.parametrize(
    ("address", "is_same"),
    [
        ("https://ml.example.org/api/2.0", True),
        ("https://ML.example.org:443/x", True),
        ("http://ml.example.org/api/2.0", False),
        ("https://ml.example.org:8443/api/2.0", False),
        ("https://ml.example.org.evil.example/", False),
        ("https://evil.example/ml.example.org", False),
        ("sqlite:////a/mlflow.db", False),
    ],
)
def test_a_secret_is_given_for_a_scheme_a_host_and_a_port(address: str, is_same: bool) -> None:
    assert is_same_server(address, "https://ml.example.org") is is_same
