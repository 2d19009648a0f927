#!/usr/bin/env bash
# Written by `loopline init`; yours to change. Checks all specs, then runs the loops; writes the verdicts to the file $1.
# A project of which nothing changed ends at once. A gate that refuses is a verdict (exit code 3), and no failure.
set -euo pipefail
verdict=$1
worst=0
printed=$(mktemp)
rm -f "$verdict" # a branch may have committed a link of this name
echo "Loops of $(git describe --always)" > "$verdict"
projects=()
for spec in projects/*/project.yaml; do
    [ ! -e "$spec" ] || projects+=("$(basename "$(dirname "$spec")")")
done
for project in "${projects[@]}"; do
    code=0
    loopline plan "$project" 2> "$printed" || code=$?
    if [ "$code" != 0 ]; then
        worst=$code
        printf '\n## %s: refused\n\n%s\n' "$project" "$(cat "$printed")" | tee -a "$verdict"
    fi
done
if [ "$worst" = 0 ]; then
    for project in "${projects[@]}"; do
        code=0
        loopline run "$project" --markdown > "$printed" || code=$?
        [ -s "$printed" ] || echo "## $project: no verdict (exit code $code): see the job's log" > "$printed"
        { echo && cat "$printed"; } | tee -a "$verdict"
        [ "$code" = 0 ] || [ "$code" = 3 ] || worst=$code
    done
fi
exit "$worst"
