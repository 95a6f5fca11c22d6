# If io_uring is forbidden, as in some containers, the server says so and uses threads; if it must
# use only io_uring, it does not start.
. "$(dirname "$0")/lib.sh"
need python3 qemu-io
cat >forbid.py <<'END'
"""Runs a program for which io_uring_setup(2) fails with EPERM."""
import ctypes, os, struct, sys

libc = ctypes.CDLL(None, use_errno=True)
load, equal, answer, allow, deny = 0x20, 0x15, 0x06, 0x7FFF0000, 0x00050001
steps = [(load, 0, 0, 0), (equal, 0, 1, 425), (answer, 0, 0, deny), (answer, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0, "no_new_privs"
assert libc.prctl(22, 2, program, 0, 0) == 0, "no filter: %d" % ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
END
[ "$(uname -m)" = x86_64 ] || skip "the system call numbers are those of x86-64"
python3 forbid.py /bin/true 2>/dev/null || skip "system call filters are not available here"
binary=$FOREBAY
printf '#!/bin/sh\nexec python3 "%s/forbid.py" "%s" "$@"\n' "$WORK" "$binary" >forbidden
chmod +x forbidden
config flash size=64MiB
FOREBAY=$WORK/forbidden
start || fail "no start without io_uring"
said 'io_uring.*thread pool'
io 'write -P 1 0 8M' flush 'read -P 1 0 8M'
FOREBAY=$binary
stop
FOREBAY_IO=io_uring refused 1 'io_uring is not available' "$WORK/forbidden" serve --config forebay.toml
FOREBAY_IO=threads start
io 'read -P 1 0 8M'
stop
FOREBAY_IO=rings refused 1 'no I/O backend .rings.' "$FOREBAY" serve --config forebay.toml
