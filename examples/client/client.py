"""A client of a served model: predicts a row and reports its label later, with the standard library alone.

    python client.py http://127.0.0.1:8000 '{"months": 3, "plan": "basic", "region": "north", "monthly_fee": 12.5,
        "support_calls": 4}'
    python client.py http://127.0.0.1:8000 rows.json

The rows are JSON, or a `.json` file: a row, or a list of rows. The token, which labels need, and predictions where the
server requires it, is in the variable TOKEN; else it is that of the workspace in the current folder, if the server is
on this machine.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any


class Client:
    """A server of one model. What it refuses raises ValueError with its words, and OSError if it is not there.

    Args:
        url: Its address, such as `http://127.0.0.1:8000`.
        token: Its token: for labels, and for predictions if it requires one.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}

    def predict(self, rows: list[dict[str, Any]], ids: list[str] | None = None) -> dict[str, Any]:
        """Return predictions, their ids, and the version that answered."""
        return self._post("/invocations", {"dataframe_records": rows, **({"ids": ids} if ids else {})})

    def label(self, labels: dict[str, Any]) -> int:
        """Report the true values of predictions by their ids, and return how many were accepted."""
        listed = [{"id": name, "label": value} for name, value in labels.items()]
        return int(self._post("/feedback", {"by": "client.py", "labels": listed})["accepted"])

    def _post(self, path: str, payload: Any) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path, json.dumps(payload).encode(), self._headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                words = error.read().decode(errors="replace")
            raise ValueError(f"refused ({error.code}): {words}") from error
        return answer


def token_here(url: str) -> str | None:
    """Return the token of the workspace in the current folder, for a server on this machine; None without one."""
    path = Path(".loopline/serving/token")
    is_here = urllib.parse.urlsplit(url).hostname in ("127.0.0.1", "localhost", "::1")
    return path.read_text().strip() if is_here and path.is_file() else None


def main() -> None:
    """Predict the rows of the command line, or of the file that it names."""
    url, rows = sys.argv[1:]
    payload = json.loads(Path(rows).read_text() if rows.endswith(".json") else rows)
    client = Client(url, os.environ.get("TOKEN") or token_here(url))
    try:
        answer = client.predict(payload if isinstance(payload, list) else [payload])
    except (OSError, ValueError) as error:
        sys.exit(f"client.py: {url}: {error}")
    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
