#!/bin/bash
# Runs the listener once and turns its exit code into "again" (2) or "enough" (0).
dir="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)" || exit 1

if [ "$(id -u)" -eq 0 ] && [ -z "$RUNNER_ALLOW_RUNASROOT" ]; then
    echo "Must not run interactively with sudo"
    exit 1
fi

"$dir/bin/Runner.Listener" run "$@"
code=$?
if [ "$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE" = 1 ] && [ "$code" -eq 7 ]; then
    echo "Runner listener exit with deprecated version exit code: $code."
    exit "$code"
fi
case $code in
    0) echo "Runner listener exit with 0 return code, stop the service, no retry needed." ;;
    1) echo "Runner listener exit with terminated error, stop the service, no retry needed." ;;
    2)
        echo "Runner listener exit with retryable error, re-launch runner in 5 seconds."
        sleep 5
        exit 2
        ;;
    3 | 4)
        echo "Runner listener exit because of updating, re-launch runner after successful update"
        exit 2
        ;;
    5) echo "Runner listener exit with Session Conflict error, stop the service, no retry needed." ;;
    *) echo "Exiting with unknown error code: $code" ;;
esac
exit 0
