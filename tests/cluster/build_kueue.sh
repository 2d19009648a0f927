#!/usr/bin/env bash
# Builds Kueue's controller for the tests with Kueue of `make cluster-kubernetes` from a clone of its repository, which holds
# all its sources: about 430 CPU-seconds once.
#   build_kueue.sh FOLDER [REPOSITORY]
# FOLDER, that of build_kubernetes.sh, gets kueue-manager and kueue.yaml (its resource types and webhooks). REPOSITORY may be
# bare. Needs kubectl, and Go of the version that its go.mod names; GO names the program.
. "$(dirname "$0")/go_program.sh" https://github.com/kubernetes-sigs/kueue "$@"
git -C "$repository" archive HEAD apis client-go cmd/kueue config go.mod go.sum internal pkg vendor | tar -x -C "$work/src"
build kueue-manager ./cmd/kueue
kubectl kustomize "$work/src/config/default" > "$folder/kueue.yaml"
