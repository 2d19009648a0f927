"""Webhooks of MLflow's server: accepted only if signed and fresh.

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
"""A delivery is sent again for a few minutes at most; an older one was recorded by somebody."""
MOST_DIGITS = 12
"""Of a time in seconds: Python reads no number of thousands of them."""


def is_from_mlflow(secret: str, headers: Mapping[str, str], body: bytes, now: float) -> bool:
    """Whether a delivery was signed with the secret, within the last minutes.

    Args:
        secret: Secret of the webhook.
        headers: Headers of the request; names in lower case, or a mapping that ignores case.
        body: The body as received.
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
    """The registered model that a delivery is about; None where it is about none."""
    try:
        data = json.loads(body).get("data", {})
        return str(data["name"]) if "name" in data else None
    except (ValueError, AttributeError, TypeError):
        return None
