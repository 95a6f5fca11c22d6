# The control address rejects requests that are too large, too slow or too many, and over TCP
# clients that lack the token, name another host or come from a page of another site.
. "$(dirname "$0")/lib.sh"
need python3
config size=64MiB
start
timeout 120 python3 "$HERE/control-hostile.py" "unix:$WORK/control.sock" || fail "over the unix socket"
status | grep -q '"requests"' || fail "the server is gone"
stop
sed -i "s|^control = .*|control = \"tcp:127.0.0.1:0\"\ncontrol_token_file = \"$WORK/token\"|" forebay.toml
start
control=$(sed -E 's/.*"control":"([^"]*)".*/\1/' ready)
[ "$(stat -c %a token)" = 600 ] || fail "other users can read the token"
timeout 120 python3 "$HERE/control-hostile.py" "$control" token || fail "over TCP"
"$FOREBAY" ctl status --control "$control" --token-file token | grep -q '"requests"' || fail "ctl status"
refused 1 'token' "$FOREBAY" ctl status --control "$control" --token-file nowhere
echo 'another token, but not the right one' | tr -d ' ,' >other
refused 1 'can read or change the control token' "$FOREBAY" ctl status --control "$control" --token-file other
chmod 600 other
refused 1 'must carry the token' "$FOREBAY" ctl status --control "$control" --token-file other
cp token before
stop
# The next start uses the same token; ctl finds it through the configuration.
sed -i "s|^control = .*|control = \"$control\"|" forebay.toml
start
cmp token before || fail "another token"
"$FOREBAY" ctl destage --config forebay.toml >/dev/null || fail "ctl does not find the token"
stop
chmod 644 token
refused 1 'can read or change the control token' "$FOREBAY" serve --config forebay.toml
