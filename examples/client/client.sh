#!/usr/bin/env bash
# The same with curl: predicts a row, then reports its label by the id of the prediction.
#     URL=http://127.0.0.1:8000 bash client.sh
# Labels need the token: of TOKEN, else of the workspace in this folder for a server on this machine.
set -euo pipefail
URL=${URL:-http://127.0.0.1:8000}
case $URL in http://127.0.0.1:* | http://localhost:*) TOKEN=${TOKEN:-$(cat .loopline/serving/token 2>/dev/null || true)} ;; esac
HEADERS=(-H 'Content-Type: application/json')
if [ -n "${TOKEN:-}" ]; then HEADERS+=(-H "Authorization: Bearer $TOKEN"); fi

curl -sS --fail-with-body "${HEADERS[@]}" -H 'X-Request-Id: call-1' "$URL/invocations" \
  -d '[{"months": 3, "plan": "basic", "region": "north", "monthly_fee": 12.5, "support_calls": 4}]'
echo
curl -sS --fail-with-body "${HEADERS[@]}" "$URL/feedback" -d '{"id": "call-1", "label": "yes"}'
echo
