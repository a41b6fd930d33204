#!/bin/sh
# Compares the stand-in GitHub's answers with GitHub's published description of its API.
# usage: check.sh DESCRIPTION.json (a dereferenced one, as npm's @octokit/openapi carries: generated/api.github.com.deref.json)
# Needs python3 with the package jsonschema. For the description: npm pack @octokit/openapi, then unpack it.
set -eu
description="$(realpath "$1")"
cd "$(dirname "$0")/../../.."
exchanges="$(mktemp)"
trap 'rm -f "$exchanges"' EXIT
# As tests/run compiles it, so that nothing is compiled again.
optimised=tests/optimised.toml
RUNYARD_GITHUB_EXCHANGES="$exchanges" cargo test --workspace --locked --quiet --config "$optimised" --test contracts -- \
    --exact --ignored standin::http::exchanges_for_the_published_description
python3 tests/system/github_openapi/check.py "$description" "$exchanges"

# What an operator and its agents asked in ten runs on one machine, in both registration modes.
target="$(cargo metadata --locked --no-deps --format-version 1 |
    python3 -c 'import json,sys; print(json.load(sys.stdin)["target_directory"])')"
for mode in run job; do
    kept="$target/tmp/github-exchanges-$mode.jsonl"
    [ -f "$kept" ] || cargo test --workspace --locked --quiet --config "$optimised" --test system ten_runs
    python3 tests/system/github_openapi/check.py "$description" "$kept"
done
