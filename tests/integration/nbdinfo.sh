# The export has the documented properties, by name, as the default, and in the list.
. "$(dirname "$0")/lib.sh"
need nbdinfo
config
start
nbdinfo "$URI" >info
for words in 'export-size: 268435456' 'can_flush: true' 'can_fua: true' 'can_multi_conn: true' \
    'can_trim: true' 'can_zero: true' 'can_df: true' 'block_size_minimum: 512' 'base:allocation'; do
    grep -q "$words" info || fail "nbdinfo does not say \"$words\""
done
nbdinfo --size "nbd+unix:///vm1?socket=$WORK/nbd.sock" | grep -qx 268435456
nbdinfo --list "$URI" >list
grep -q 'export="vm1"' list || fail "$(cat list)"
! nbdinfo "nbd+unix:///none?socket=$WORK/nbd.sock" 2>/dev/null || fail "an unknown export exists"
stop
