# The common part of build_kubernetes.sh and build_kueue.sh: source it with the upstream repository and their own arguments.
# FOLDER is made. Where REPOSITORY, a folder, is not named, upstream is cloned. $work/src is for the sources; $work is removed
# at the end. `build NAME PACKAGE [LDFLAGS]` builds a program there, into FOLDER.
set -euo pipefail
folder=$(realpath -m "${2:?FOLDER}") repository=${3:-$1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$folder" "$work/src"
if [ ! -d "$repository" ]; then
  git clone --quiet --depth 1 "$repository" "$work/clone"
  repository=$work/clone
fi

build() {
  CGO_ENABLED=0 GOFLAGS=-mod=vendor GOTOOLCHAIN=local GOCACHE=${GOCACHE:-$work/cache} nice -n 10 \
    "${GO:-go}" -C "$work/src" build -p "${JOBS:-2}" -trimpath -ldflags "-s -w ${3:-}" -o "$folder/$1" "$2"
}
