#!/bin/bash
# Registers this runner, or removes it: config.sh --url … --token …, config.sh remove --token …
dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)" || exit 1

if [ "$(id -u)" -eq 0 ] && [ -z "$RUNNER_ALLOW_RUNASROOT" ]; then
    echo "Must not run with sudo" >&2
    exit 1
fi

if [ "$1" = remove ]; then
    exec "$dir/bin/Runner.Listener" "$@"
fi
exec "$dir/bin/Runner.Listener" configure "$@"
