#!/bin/bash
# Listens for jobs, again after a retryable error. Exits with 0 whatever the listener says, unless
# RUNNER_MANUALLY_TRAP_SIG is set: then it also passes SIGINT and SIGTERM on, as SIGINT. 7, that its version is deprecated,
# is passed on to whoever asked for it.
dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)" || exit 1

if [ -n "$RUNNER_MANUALLY_TRAP_SIG" ]; then
    set -m
    signalled=
    trap 'signalled=1; kill -INT -- "-$child"' INT TERM
fi

while :; do
    if [ -n "$RUNNER_MANUALLY_TRAP_SIG" ]; then
        "$dir/run-helper.sh" "$@" &
        child=$!
        wait "$child"
        code=$?
        if [ -n "$signalled" ]; then
            # The first wait was cut short by the signal.
            wait "$child"
            code=$?
        fi
    else
        "$dir/run-helper.sh" "$@"
        code=$?
    fi
    if [ "$code" -ne 2 ]; then
        echo "Exiting runner..."
        [ -n "$RUNNER_MANUALLY_TRAP_SIG" ] && exit "$code"
        [ "$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE" = 1 ] && [ "$code" -eq 7 ] && exit "$code"
        exit 0
    fi
    echo "Restarting runner..."
done
