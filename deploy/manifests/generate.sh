#!/usr/bin/env bash
# Prints what tributary.yaml beside it is, made anew from the chart: `generate.sh > tributary.yaml`. It needs helm, or
# HELM=…; a test compares what is committed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

cat <<'END'
# Tributary for a team: made from ../helm/tributary by generate.sh; change that, or values.yaml, and not this.
---
apiVersion: v1
kind: Namespace
metadata:
  name: tributary
  labels:
    pod-security.kubernetes.io/enforce: restricted
    pod-security.kubernetes.io/warn: restricted
END
# Without what only Helm knows what to do with, and empty lines, of which versions of Helm leave different ones.
"${HELM:-helm}" template tributary "$here/../helm/tributary" --namespace tributary --kube-version 1.36.0 --values "$here/values.yaml" |
  sed -e '/^# Source:/d' -e '/helm\.sh\/chart:/d' -e '/app\.kubernetes\.io\/managed-by: Helm/d' -e '/^$/d'
