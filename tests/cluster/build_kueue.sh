#!/usr/bin/env bash
# Builds Kueue's controller for the tests with Kueue of `make cluster-kubernetes` from a clone of its repository, which holds
# all its sources: about 430 CPU-seconds once.
#   build_kueue.sh FOLDER [REPOSITORY]
# FOLDER, that of build_kubernetes.sh, gets kueue-manager and kueue.yaml (its resource types and webhooks). REPOSITORY may be
# bare. Needs kubectl, and Go of the version that its go.mod names; GO names the program.
set -euo pipefail
folder=$(realpath -m "${1:?FOLDER}") repository=${2:-https://github.com/kubernetes-sigs/kueue}
GO=${GO:-go}
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ ! -d "$repository" ]; then
  git clone --quiet --depth 1 "$repository" "$work/clone"
  repository=$work/clone
fi
mkdir "$work/src"
git -C "$repository" archive HEAD apis client-go cmd/kueue config go.mod go.sum internal pkg vendor | tar -x -C "$work/src"
cd "$work/src"
CGO_ENABLED=0 GOFLAGS=-mod=vendor GOTOOLCHAIN=local GOCACHE=${GOCACHE:-$work/cache} \
  nice -n 10 "$GO" build -p "${JOBS:-2}" -trimpath -ldflags "-s -w" -o "$folder/kueue-manager" ./cmd/kueue
kubectl kustomize config/default > "$folder/kueue.yaml"
