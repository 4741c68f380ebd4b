#!/bin/bash
# REST v1 by curl: look, ask whether two GPUs are free, take them, get PyTorch's settings for them, give them back.
# DOVETAIL_GATEWAY is the gateway's URL, DOVETAIL_TOKEN a token of the cluster.
set -eu

call() {
  curl -sS --fail-with-body -H "Authorization: Bearer $DOVETAIL_TOKEN" -H 'Content-Type: application/json' \
    "$DOVETAIL_GATEWAY/api/v1/gpu$1" "${@:2}"
  echo
}

WANTED='{"gpu_count": 2, "gpu_type": "V100", "memory_gb": 16, "mixed_precision": true}'

call /status
call '/nodes?gpu_type=V100&min_memory_gb=16'
call /validate -d "$WANTED"
ALLOCATED=$(call /allocate -d "$WANTED")
echo "$ALLOCATED"
ID=$(grep -oP '"allocation_id":\s*"\K[^"]+' <<< "$ALLOCATED")
# However the script goes on, the GPUs are free at its end.
trap 'call "/allocations/$ID" -X DELETE' EXIT
call /setup-pytorch -d "${WANTED%\}}, \"allocation_id\": \"$ID\"}"
call /setup-tensorflow -d "${WANTED%\}}, \"allocation_id\": \"$ID\"}"
