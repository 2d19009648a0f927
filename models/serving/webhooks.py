"""Webhooks of MLflow's server: a delivery is accepted only if its signature is valid and its timestamp is recent.

Source: mlflow.webhooks (delivery.py, constants.py), version 3: `v1,` and the base64 of HMAC-SHA256 over
`<delivery id>.<timestamp>.<body>`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping

SIGNATURE, TIMESTAMP, DELIVERY = "x-mlflow-signature", "x-mlflow-timestamp", "x-mlflow-delivery-id"
FRESH_S = 300.0
"""MLflow retries a delivery for a few minutes at most; an older one is a replay."""
MOST_DIGITS = 12
"""Most digits of a timestamp in seconds: Python does not parse numbers with thousands of digits."""


def is_from_mlflow(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Return True if the delivery was signed with the secret within the last minutes.

    Args:
        secret: Secret of the webhook.
        headers: Headers of the request; names in lower case, or a case-insensitive mapping.
        body: The unchanged body.
        now: Unix time.
    """
    stamp = headers.get(TIMESTAMP, "")
    if len(stamp) > MOST_DIGITS or not stamp.isascii() or not stamp.isdecimal() or abs(now - int(stamp)) > FRESH_S:
        return False
    signed = f"{headers.get(DELIVERY, '')}.{stamp}.".encode() + body
    digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
    expected = b"v1," + base64.b64encode(digest)
    return hmac.compare_digest(expected, headers.get(SIGNATURE, "").encode())


def model_named(body: bytes) -> str | None:
    """Return the registered model that a delivery is about; None if it is about none."""
    try:
        data = json.loads(body).get("data", {})
        return str(data["name"]) if "name" in data else None
    except (ValueError, AttributeError, TypeError):
        return None
