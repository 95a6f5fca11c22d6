# Data copied in with nbdcopy comes out unchanged, over several connections, and is on the backing
# store after a clean stop. FOREBAY_COPY_MIB is the amount.
. "$(dirname "$0")/lib.sh"
need nbdcopy
mib=${FOREBAY_COPY_MIB:-512}
config flash size=${mib}MiB flash_size=256MiB dram=32MiB
head -c "${mib}M" /dev/urandom >in.img
start
nbdcopy --flush in.img "$URI"
nbdcopy "$URI" out.img
cmp in.img out.img || fail "what came out is not what went in"
rm out.img
stop
# Layout "offset": data begin after the first MiB.
cmp in.img <(tail -c +1048577 disk.img) || fail "the backing store does not hold all data"
