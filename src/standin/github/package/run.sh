#!/bin/bash
# Listens for jobs, again after a retryable error. Exits with 0 whatever the listener says, unless
# RUNNER_MANUALLY_TRAP_SIG is set: then it also passes the first SIGINT or SIGTERM on, as SIGINT. As in GitHub's, one that
# comes before there is a child to pass it on to is lost, and one that comes after the first ends this script alone. 7, that
# its version is deprecated, is passed on to whoever asked for it. Its helper is made anew each time, so the directory
# must be writable.
dir="$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)" || exit 1

if [ -n "$RUNNER_MANUALLY_TRAP_SIG" ]; then
    set -m
    trap 'kill -INT -- "-$child"' INT TERM
fi

while :; do
    export ACTIONS_RUNNER_STAND_IN_BEGAN=$EPOCHREALTIME
    cp -f "$dir/run-helper.sh.template" "$dir/run-helper.sh"
    if [ -n "$RUNNER_MANUALLY_TRAP_SIG" ]; then
        "$dir/run-helper.sh" "$@" &
        child=$!
        wait "$child"
        code=$?
    else
        "$dir/run-helper.sh" "$@"
        code=$?
    fi
    if [ "$code" -ne 2 ]; then
        echo "Exiting runner..."
        if [ -n "$RUNNER_MANUALLY_TRAP_SIG" ]; then
            trap - INT TERM
            # A signal cut the first wait short.
            wait "$child"
            exit "$code"
        fi
        [ "$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE" = 1 ] && [ "$code" -eq 7 ] && exit "$code"
        exit 0
    fi
    echo "Restarting runner..."
done
