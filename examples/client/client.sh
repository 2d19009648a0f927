#!/usr/bin/env bash
# The same with curl: predicts a row, then reports its label by the id of the prediction.
#     URL=http://127.0.0.1:8000 bash client.sh
set -euo pipefail
URL=${URL:-http://127.0.0.1:8000}
HEADERS=(-H 'Content-Type: application/json')
if [ -n "${TOKEN:-}" ]; then HEADERS+=(-H "Authorization: Bearer $TOKEN"); fi

curl -sSf "${HEADERS[@]}" -H 'X-Request-Id: call-1' "$URL/invocations" \
  -d '[{"months": 3, "plan": "basic", "region": "north", "monthly_fee": 12.5, "support_calls": 4}]'
echo
curl -sSf "${HEADERS[@]}" "$URL/feedback" -d '{"id": "call-1", "label": "yes"}'
echo
