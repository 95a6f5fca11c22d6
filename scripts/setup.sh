#!/usr/bin/env bash
# Installs what the build and the tests need, on Debian as root; elsewhere it lists what is missing.
# The exit status is 1 only if something that the build needs is missing.
set -euo pipefail
. "$(dirname "$0")/common.sh"

# program:package, with the names of Debian packages.
BUILD="cc:gcc make:make git:git"
TESTS="fio:fio nbdkit:nbdkit nbdinfo:libnbd-bin nbdcopy:libnbd-bin nbdfuse:libnbd-bin
    qemu-img:qemu-utils qemu-io:qemu-utils qemu-nbd:qemu-utils mkfs.ext4:e2fsprogs
    debugfs:e2fsprogs fusermount3:fuse3 sqlite3:sqlite3 curl:curl openssl:openssl strace:strace
    python3:python3-venv shellcheck:shellcheck prometheus:prometheus promtool:prometheus"

lacking() {
    local pair
    for pair in $1; do
        has "${pair%%:*}" || printf '%s\n' "${pair##*:}"
    done | sort -u
}

wanted="$(lacking "$BUILD $TESTS" | tr '\n' ' ')"
if [ -n "${wanted// /}" ] && [ -e /etc/debian_version ] && [ "$(id -u)" = 0 ]; then
    say "installing: $wanted"
    export DEBIAN_FRONTEND=noninteractive
    # If no mirror can be reached, the tests that need these programs are skipped and say so.
    log="$(mktemp)"
    patience="-o Acquire::Retries=1 -o Acquire::http::Timeout=20 -o DPkg::Lock::Timeout=120"
    # shellcheck disable=SC2086
    if ! { timeout 300 apt-get $patience update -qq &&
        timeout 600 apt-get $patience install -y -qq --no-install-recommends $wanted; } \
        >"$log" 2>&1; then
        tail -n 3 "$log"
        say "installing failed"
    fi
    rm -f "$log"
    # Debian starts services when it installs them; the tests start their own.
    case " $wanted " in
        *" prometheus "*) ! has systemctl || systemctl disable --now -q prometheus 2>/dev/null || true ;;
    esac
fi

status=0
report() {
    local pair program
    for pair in $1; do
        program="${pair%%:*}"
        if ! has "$program"; then
            say "missing: $program (Debian package ${pair##*:}), needed for $2"
            [ "$2" = tests ] || status=1
        fi
    done
}
report "$BUILD" "the build"
report "$TESTS" tests

# Debian's own Rust is too old for the build, so it comes from rustup.rs.
if ! has cargo && has curl && [ -e /etc/debian_version ] && [ "$(id -u)" = 0 ]; then
    say "installing: Rust, from https://rustup.rs, for this user"
    if ! curl --proto '=https' --tlsv1.2 -sSf --max-time 600 https://sh.rustup.rs |
        sh -s -- -y -q --profile minimal --component rustfmt --component clippy --no-modify-path; then
        say "installing Rust failed"
    fi
fi
if ! has cargo; then
    say "missing: cargo, needed for the build: see https://rustup.rs"
    exit 1
fi
for component in fmt clippy; do
    if ! cargo "$component" --version >/dev/null 2>&1; then
        if has rustup; then
            rustup component add "${component/fmt/rustfmt}"
        else
            say "missing: cargo $component, needed for the build"
            status=1
        fi
    fi
done
say "$(rustc --version), $(cargo --version)"
exit "$status"
