# The names of files that a start creates are durable before the first client: the directory of each
# file is synced after the file got its name.
. "$(dirname "$0")/lib.sh"
need strace python3
strace -o /dev/null true 2>/dev/null || skip "strace cannot trace here"
mkdir stores tier etc
config flash size=8MiB flash_size=16MiB backing="$WORK/stores/vm1.img"
sed -i "s|^path = .*|path = \"$WORK/tier/flash.img\"|; s|^control = .*|control = \"tcp:127.0.0.1:0\"|" forebay.toml
echo "control_token_file = \"$WORK/etc/token\"" >>forebay.toml
cat >traced <<END
#!/bin/sh
exec strace -D -f -y -qq -o "$WORK/trace" -e trace=openat,link,linkat,fsync,write "$FOREBAY" "\$@"
END
chmod +x traced
FOREBAY=$WORK/traced
start || fail "no start: $(cat server.log)"
stop
python3 -B - "$WORK" <<'END'
import re
import sys
from pathlib import Path

work = sys.argv[1]
named = {f"{work}/{name}": None for name in ("stores/vm1.img", "tier/flash.img", "etc/token")}
synced = {}
for n, line in enumerate(Path(work, "trace").read_text().splitlines()):
    if created := re.search(r'openat\(.*, "([^"]+)", .*O_CREAT.*\) = \d+', line):
        named[created[1]] = n
    elif linked := re.search(r'link(?:at)?\(.*"([^"]+)"(?:, 0)?\) = 0', line):
        named[linked[1]] = n
    elif sync := re.search(r"fsync\(\d+<([^>]+)>\) = 0", line):
        synced.setdefault(sync[1], []).append(n)
    elif re.search(rf"write\(1<{re.escape(work)}/ready>", line):
        ready = n
        break
else:
    sys.exit("FAILED: the trace has no line that says where clients connect")
for path in ("stores/vm1.img", "tier/flash.img", "etc/token"):
    path = f"{work}/{path}"
    at = named[path]
    if at is None:
        sys.exit(f"FAILED: {path} was not created")
    directory = str(Path(path).parent)
    if not any(at < n < ready for n in synced.get(directory, [])):
        sys.exit(f"FAILED: {path} got its name, and {directory} was not synced")
END
