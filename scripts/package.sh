#!/usr/bin/env bash
# Builds a Debian package of a binary that is there: target/package/forebay_VERSION_ARCHITECTURE.deb.
# FOREBAY=path of the binary; OUT=directory of the package.
set -euo pipefail
. "$(dirname "$0")/common.sh"

lacking="$(missing dpkg-deb strip objdump gzip)"
[ -z "$lacking" ] || { say "missing: $lacking, needed for the package"; exit 1; }
binary="${FOREBAY:-${CARGO_TARGET_DIR:-target}/release/forebay}"
out="${OUT:-${CARGO_TARGET_DIR:-target}/package}"
version="$("$binary" --version | cut -d' ' -f2)"
architecture="$(dpkg --print-architecture)"
tree="$(mktemp -d "${TMPDIR:-/tmp}/forebay-package.XXXXXX")"
trap 'rm -rf "$tree"' EXIT
chmod 755 "$tree"
umask 022

mkdir -p "$tree"/usr/{bin,lib/systemd/system,share/man/man1,share/doc/forebay/examples} "$tree/DEBIAN" "$out"
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

# The C library must be at least as new as the newest symbol that the binary wants of it.
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
 Forebay measures a block workload, plans which cache tiers pay off for it,
 proves the plan by simulation and replay, and serves that cache over NBD.
END
package="$out/forebay_${version}_$architecture.deb"
dpkg-deb --root-owner-group --build "$tree" "$package" >/dev/null
say "$package"
