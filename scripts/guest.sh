#!/usr/bin/env bash
# Runs a virtual machine on exports while the server is killed: see tests/integration/guest/lib.sh.
#
#   scripts/guest.sh                  all tests
#   scripts/guest.sh guest/disk       only this test
#   FOREBAY=path scripts/guest.sh     with this binary
set -euo pipefail
. "$(dirname "$0")/common.sh"

if ! has qemu-system-x86_64 && [ -e /etc/debian_version ] && [ "$(id -u)" = 0 ]; then
    say "installing: qemu-system-x86"
    log="$(mktemp)"
    patience="-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=120"
    # shellcheck disable=SC2086
    if ! { timeout 300 apt-get $patience update -qq &&
        DEBIAN_FRONTEND=noninteractive timeout 600 apt-get $patience install -y -qq \
            --no-install-recommends qemu-system-x86; } >"$log" 2>&1; then
        tail -n 3 "$log"
        say "installing failed"
    fi
    rm -f "$log"
fi
if [ -z "${FOREBAY:-}" ]; then
    cargo build --workspace --bin forebay
    export FOREBAY="${CARGO_TARGET_DIR:-$PWD/target}/debug/forebay"
fi
[ $# -gt 0 ] || set -- guest/disk guest/nbd
exec tests/integration/run "$@"
