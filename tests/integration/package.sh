# The Debian package, unpacked into a directory: its binary serves the example configuration, and
# the unit, manual pages and completions are there.
. "$(dirname "$0")/lib.sh"
need dpkg-deb dpkg strip objdump gzip qemu-io
COMPRESS=none FOREBAY=$FOREBAY OUT=$WORK/out "$ROOT/scripts/package.sh" deb || fail "no package"
package=$(echo out/*.deb)
dpkg-deb --info "$package" >info
grep -q '^ Package: forebay$' info || fail "the control file: $(cat info)"
dpkg-deb -x "$package" root
for file in lib/systemd/system/forebay.service share/man/man1/forebay-serve.1.gz share/doc/forebay/copyright \
    share/bash-completion/completions/forebay share/zsh/vendor-completions/_forebay \
    share/fish/vendor_completions.d/forebay.fish; do
    [ -s "root/usr/$file" ] || fail "no $file"
done
! dpkg-deb -c "$package" | awk '$2 != "root/root"' | grep . || fail "files not owned by root"
bash -n root/usr/share/bash-completion/completions/forebay
gzip -dc root/usr/share/man/man1/forebay-serve.1.gz | grep '^\.TH' >/dev/null || fail "no manual page"
[ "$(root/usr/bin/forebay --version)" = "$("$FOREBAY" --version)" ] || fail "another version"
[ "$(stat -c %s root/usr/bin/forebay)" -lt "$(stat -c %s "$FOREBAY")" ] || fail "it is not stripped"
# Every command has a manual page.
for command in $(root/usr/bin/forebay help | sed -n '/^Commands:/,/^$/s/^  \([a-z]\+\) .*/\1/p'); do
    [ "$command" = help ] || [ -s "root/usr/share/man/man1/forebay-$command.1.gz" ] || fail "no page of $command"
done
[ -n "${command-}" ] || fail "no commands: $(root/usr/bin/forebay help)"
# The unit starts the binary of the package.
started=$(sed -n 's/^ExecStart=\([^ ]*\).*/\1/p' root/usr/lib/systemd/system/forebay.service)
[ -x "root$started" ] || fail "the unit starts $started"
if command -v systemd-analyze >/dev/null; then
    mkdir units
    sed "s|/usr/bin/forebay|$WORK/root&|" root/usr/lib/systemd/system/forebay.service >units/forebay.service
    systemd-analyze verify --man=no units/forebay.service >verify 2>&1 || fail "the unit: $(cat verify)"
    # (systemd ignores directives that it does not understand, with a warning.)
    [ ! -s verify ] || fail "the unit: $(cat verify)"
fi
sed "s|/var/lib/forebay|$WORK|; s|/run/forebay|$WORK|" root/usr/share/doc/forebay/examples/forebay.toml >forebay.toml
FOREBAY=$WORK/root/usr/bin/forebay
start || fail "the start: $(cat server.log)"
io 'write -P 7 0 4k' 'read -P 7 0 4k'
stop || fail "the stop: $(cat server.log)"
