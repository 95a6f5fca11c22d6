#!/usr/bin/env bash
# Packs an existing binary into target/package: a Debian package, forebay_VERSION_ARCHITECTURE.deb,
# and a wheel of the Python package that includes the binary, forebay-VERSION-py3-none-PLATFORM.whl.
#
#   scripts/package.sh          both
#   scripts/package.sh deb      only this one (or wheel)
#
# FOREBAY=path of the binary; OUT=directory for the packages; COMPRESS=compression of the Debian
# package (xz).
set -euo pipefail
. "$(dirname "$0")/common.sh"

need() {
    local lacking
    lacking="$(missing "$@")"
    [ -z "$lacking" ] || { say "missing: $lacking, needed for the package"; exit 1; }
}
binary="${FOREBAY:-${CARGO_TARGET_DIR:-target}/release/forebay}"
out="${OUT:-${CARGO_TARGET_DIR:-target}/package}"
out="$(mkdir -p "$out" && realpath "$out")"
binary="$(realpath "$binary")"
scratch="$(mktemp -d "${TMPDIR:-/tmp}/forebay-package.XXXXXX")"
trap 'rm -rf "$scratch"' EXIT
umask 022
need strip objdump

deb() {
    need dpkg dpkg-deb gzip
    local version architecture libc package tree="$scratch/deb"
    version="$("$binary" --version | cut -d' ' -f2)"
    architecture="$(dpkg --print-architecture)"
    mkdir -p "$tree"/usr/{bin,lib/systemd/system,share/man/man1,share/doc/forebay/examples} "$tree/DEBIAN"
    strip -o "$tree/usr/bin/forebay" "$binary"
    "$binary" man --quiet "$tree/usr/share/man/man1"
    gzip -9n "$tree"/usr/share/man/man1/*
    complete() {
        mkdir -p "$tree/usr/share/$2"
        "$binary" completions "$1" >"$tree/usr/share/$2/$3"
    }
    complete bash bash-completion/completions forebay
    complete zsh zsh/vendor-completions _forebay
    complete fish fish/vendor_completions.d forebay.fish
    install -m 644 packaging/forebay.service "$tree/usr/lib/systemd/system/"
    install -m 644 packaging/forebay.toml "$tree/usr/share/doc/forebay/examples/"
    install -m 644 LICENSE "$tree/usr/share/doc/forebay/copyright"
    gzip -9nc CHANGELOG.md >"$tree/usr/share/doc/forebay/changelog.gz"

    # The C library must be at least as new as the newest symbol that the binary uses.
    libc="$(objdump -T "$binary" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)"
    cat >"$tree/DEBIAN/control" <<END
Package: forebay
Version: $version
Architecture: $architecture
Maintainer: The Forebay developers <noreply@users.noreply.github.com>
Installed-Size: $(du -sk "$tree/usr" | cut -f1)
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1
Section: admin
Priority: optional
Homepage: https://github.com/forebay/forebay
Description: block cache in memory and flash for slow disks
 Forebay measures a block workload, works out which cache tiers pay off, checks
 the plan by simulation and replay, and serves the resulting cache over NBD.
END
    package="$out/forebay_${version}_$architecture.deb"
    dpkg-deb --root-owner-group -Z"${COMPRESS:-xz}" --build "$tree" "$package" >/dev/null
    say "$package"
}

# (pip fetches the build backend of the wheel; the dependencies of the package are not needed.)
wheel() {
    need python3
    strip -o "$scratch/forebay" "$binary"
    python3 -m venv "$scratch/venv"
    FOREBAY_BINARY="$scratch/forebay" "$scratch/venv/bin/pip" wheel -q --disable-pip-version-check --no-deps \
        -w "$scratch/wheel" ./python
    local built
    for built in "$scratch"/wheel/*.whl; do
        mv "$built" "$out/"
        say "$out/$(basename "$built")"
    done
}

[ $# -gt 0 ] || set -- deb wheel
for what; do
    case "$what" in
        deb | wheel) "$what" ;;
        *) say "there is no package '$what'; choose deb or wheel"; exit 2 ;;
    esac
done
