"""A webhook's delivery is believed when it is signed as MLflow signs, and fresh."""

import pytest

from models.serving.webhooks import DELIVERY, FRESH_S, SIGNATURE, TIMESTAMP, is_from_mlflow, model_named

NOW = 1_700_000_000.0
BODY = b'{"data": {"name": "tiny"}}'
SIGNED = "v1,Xz/YW5MmYvzocefxJbRmsR30l+R/zNEhtYHhkTEEz2c="
"""As mlflow.webhooks.delivery 3.17 signs that body with the secret `secret`."""
HEADERS = {SIGNATURE: SIGNED, TIMESTAMP: "1700000000", DELIVERY: "d-1"}


def test_what_mlflow_signed_is_believed():
    assert is_from_mlflow("secret", HEADERS, BODY, NOW)
    assert is_from_mlflow("secret", HEADERS, BODY, NOW + FRESH_S)


@pytest.mark.parametrize(
    "changed",
    [
        {SIGNATURE: ""},
        {SIGNATURE: SIGNED.replace("v1", "v2")},
        {SIGNATURE: "v1,é"},
        {TIMESTAMP: "1700000001"},
        {TIMESTAMP: "soon"},
        {TIMESTAMP: "²"},
        {TIMESTAMP: ""},
        {TIMESTAMP: "1" * 5000},
        {TIMESTAMP: "١٧٠٠٠٠٠٠٠٠"},
        {DELIVERY: "d-2"},
    ],
)
def test_anything_else_is_not(changed):
    assert not is_from_mlflow("secret", {**HEADERS, **changed}, BODY, NOW)


def test_another_body_another_secret_or_another_time_is_not():
    assert not is_from_mlflow("secret", HEADERS, BODY.replace(b"tiny", b"huge"), NOW)
    assert not is_from_mlflow("other", HEADERS, BODY, NOW)
    assert not is_from_mlflow("secret", HEADERS, BODY, NOW + FRESH_S + 1)
    assert not is_from_mlflow("secret", {}, BODY, NOW)


@pytest.mark.parametrize(
    ("body", "name"),
    [(BODY, "tiny"), (b"{}", None), (b"[]", None), (b"nonsense", None), (b'{"data": 3}', None), (b"\xff", None)],
)
def test_the_model_that_it_is_about(body, name):
    assert model_named(body) == name
