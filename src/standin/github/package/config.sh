#!/bin/bash
# Registers this runner, or removes it: config.sh --url … --token …, config.sh remove --token …
# It asks of its place what GitHub's asks, in its order and words (listener/demands.rs).
export ACTIONS_RUNNER_STAND_IN_BEGAN=$EPOCHREALTIME

if [ "$(id -u)" -eq 0 ] && [ -z "$RUNNER_ALLOW_RUNASROOT" ]; then
    echo "Must not run with sudo"
    exit 1
fi

dir="$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd)" || exit 1
cd "$dir" || exit 1

lacks() {
    echo "$1 is missing for Dotnet Core 6.0"
    echo "Execute sudo ./bin/installdependencies.sh to install any missing Dotnet Core 6.0 dependencies."
    exit 1
}
if [ "$(uname)" = Linux ]; then
    if ! command -v ldd >/dev/null; then
        echo "Can not find 'ldd'. Please install 'ldd' and try again."
        exit 1
    fi
    for library in libcoreclr libSystem.Security.Cryptography.Native.OpenSsl libSystem.IO.Compression.Native; do
        ldd "./bin/$library.so" | grep 'not found' && lacks Dependencies
    done
    # A developer's machine may have none: only where the stand-in was told to ask for it.
    # shellcheck disable=SC2050 # the package is made with one word or another
    if [ "@LIBICU@" = asked ]; then
        ldconfig=$(command -v ldconfig || echo /sbin/ldconfig)
        if [ ! -x "$ldconfig" ]; then
            echo "Can not find 'ldconfig' in PATH and '/sbin/ldconfig' doesn't exists either. Please install 'ldconfig' and try again."
            exit 1
        fi
        # shellcheck disable=SC2086 # they are words
        "$ldconfig" -NXv ${LD_LIBRARY_PATH//:/ } 2>&1 | grep libicu >/dev/null || lacks "Libicu's dependencies"
    fi
fi

# shellcheck disable=SC1091 # it stands beside this one
. ./env.sh

[ "$1" = remove ] || set -- configure "$@"
./bin/Runner.Listener "$@"
