# Files that the server creates are accessible only to its own user, whatever the umask; sockets are
# accessible to those whom the configuration names.
. "$(dirname "$0")/lib.sh"
for mask in 000 077; do
    rm -rf -- *
    config flash size=64MiB
    sed -i "s|^control = .*|control = \"tcp:127.0.0.1:0\"\ncontrol_token_file = \"$WORK/token\"|" forebay.toml
    umask "$mask"
    start --record trace.parquet --tape tape
    for file in disk.img flash.img trace.parquet.partial tape nbd.sock token; do
        [ "$(stat -c %a $file)" = 600 ] || fail "$file under umask $mask: $(stat -c %a $file)"
    done
    stop
    [ "$(stat -c %a trace.parquet)" = 600 ] || fail "trace.parquet under umask $mask"
    config flash size=64MiB
    start
    [ "$(stat -c %a control.sock)" = 600 ] || fail "control.sock under umask $mask"
    stop
    echo 'socket_mode = "0666"' >>forebay.toml
    echo 'control_mode = "0660"' >>forebay.toml
    echo "control_group = \"$(id -g)\"" >>forebay.toml
    start
    [ "$(stat -c %a nbd.sock)" = 666 ] || fail "nbd.sock under umask $mask: not as configured"
    [ "$(stat -c %a control.sock)" = 660 ] || fail "control.sock under umask $mask: not as configured"
    stop
    if [ "$(id -u)" = 0 ]; then
        sed -i 's|^socket_mode.*|socket_mode = "0600"\nsocket_owner = "1234"\nsocket_group = "5678"|' forebay.toml
        start
        [ "$(stat -c %a:%u:%g nbd.sock)" = 600:1234:5678 ] || fail "nbd.sock is another's"
        stop
    fi
done
echo 'control_owner = "nobody of this name"' >>forebay.toml
refused 1 'no user .nobody of this name' "$FOREBAY" serve --config forebay.toml
sed -i 's|^control_owner.*|control_owner = "4294967295"|' forebay.toml
refused 1 'no user .4294967295' "$FOREBAY" serve --config forebay.toml
sed -i 's|^control_owner.*||; s|^control_mode.*|control_mode = "rw-rw----"|' forebay.toml
refused 2 'not a mode' "$FOREBAY" serve --config forebay.toml
