# Which parts of an export contain data (base:allocation): an empty export is copied at once, and
# holes and zeroes, and only these, are reported as such, through trims, kills and restarts.
. "$(dirname "$0")/lib.sh"
need nbdinfo nbdcopy qemu-img qemu-io python3

# told OFFSET LENGTH KIND...: checks that the whole range is reported as one of these kinds.
told() {
    local offset=$1 length=$2
    shift 2
    nbdinfo --map --json "$URI" >map.json
    python3 - "$offset" "$length" "$@" <<'END' || fail "bytes $offset+$length are reported incorrectly: $(cat map.json)"
import json, sys
start, length, kinds = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
extents = json.load(open("map.json"))
at = 0
for extent in extents:
    assert extent["offset"] == at, f"a gap at {at}"
    at += extent["length"]
    if extent["offset"] < start + length and at > start and extent["description"] not in kinds:
        sys.exit(f"{extent} is not one of {kinds}")
assert at >= start + length, f"the map ends at {at}"
END
}
read_bytes() { status | python3 -c 'import json,sys; print(json.load(sys.stdin)["backing"]["read_bytes"])'; }
seconds() { local began=$EPOCHREALTIME; "$@"; python3 -c "print(round($EPOCHREALTIME - $began, 3))"; }
MIB=$((1 << 20)) GIB=$((1 << 30))

# An empty export of 8 GiB.
config flash size=8GiB
start
told 0 $((8 * GIB)) hole,zero
[ "$(python3 -c 'import json; print(len(json.load(open("map.json"))))')" = 1 ] || fail "one hole is reported in pieces"
copied=$(seconds nbdcopy "$URI" empty.img)
converted=$(seconds qemu-img convert -f raw -O raw "$URI" converted.img)
echo "8 GiB of nothing: nbdcopy $copied s, qemu-img convert $converted s, $(read_bytes) bytes read from the store"
[ "$(read_bytes)" -le $((4 * MIB)) ] || fail "$(read_bytes) bytes were read to copy nothing"
for copy in empty.img converted.img; do
    [ "$(stat -c %s $copy)" = $((8 * GIB)) ] || fail "$copy has $(stat -c %s $copy) bytes"
    [ "$(stat -c %b $copy)" -lt 64 ] || fail "$copy takes $(stat -c %b $copy) sectors"
done
rm empty.img converted.img

# Data that is only on flash, over a hole of the store; zeroes over that; a trim that reaches the
# store.
python3 - <<'END'
with open("disk.img", "r+b") as disk:
    disk.seek((1 << 20) + (2 << 30))  # after the header
    disk.write(b"x" * (4 << 20))
END
told $((2 * GIB)) $((4 * MIB)) data
io "write -P 7 1M 64k" "write -P 7 5G 12k" "write -P 9 8589930496 4k" "write -P 9 6442451456 512"
python3 - <<'END'
import os
disk = os.open("disk.img", os.O_RDONLY)
assert os.lseek(disk, 2 << 20, os.SEEK_DATA) == (1 << 20) + (2 << 30), "the store has data there already"
END
told $MIB 65536 data
told $((MIB - 4096)) 4096 hole,zero
told $((MIB + 65536)) $((GIB - 65536)) hole,zero
told $((5 * GIB)) 12288 data
told $((8 * GIB - 4096)) 4096 data
told $((6 * GIB)) 4096 data
io "discard 1028k 8k" "write -z 1048k 4k" "discard 1060k 512" "discard 2G 1M" "write -z -u 2049M 1M"
told $MIB 4096 data
told $((MIB + 4096)) 8192 zero
told $((MIB + 12288)) 12288 data
told $((MIB + 24576)) 4096 zero
told $((MIB + 36864)) 4096 data
told $((2 * GIB)) $((2 * MIB)) hole,zero
told $((2 * GIB + 2 * MIB)) $((2 * MIB)) data
[ "$(stat -c %b disk.img)" -lt $((8 * MIB / 512)) ] || fail "the trim freed no space"
qemu-img map -f raw --output=json "$URI" >qemu.json
python3 - <<'END'
import json
told = {e["offset"]: e for e in json.load(open("map.json"))}
for extent in json.load(open("qemu.json")):
    assert told[extent["start"]]["length"] == extent["length"], extent
    assert ("zero" in told[extent["start"]]["description"]) == extent["zero"], extent
END
# Data that is written again after a trim is data.
io "write -P 5 1028k 4k" "read -P 5 1028k 4k" "read -P 0 1032k 4k"
told $((MIB + 4096)) 4096 data
told $((MIB + 8192)) 4096 zero
stop
rm -f disk.img flash.img

# A random sparse image with trims; copied between writes, after kills, and after restarts.
config flash size=256MiB dram=4MiB flash_size=24MiB
truncate -s 256M model.img
start
for round in 1 2 3 4 5 6; do
    python3 - "$round" >commands <<'END'
import os, random, sys
draw = random.Random(int(sys.argv[1]))
model, size = os.open("model.img", os.O_RDWR), 256 << 20
print("qemu-io -f raw \\")
for _ in range(150):
    unit = draw.choice([512, 4096, 4096, 65536])
    length = unit * draw.randint(1, 16)
    # Only in part of the image, so that many blocks are overwritten, and many never written.
    offset = draw.randrange(0, 24 << 20, unit) + draw.choice([0, 64 << 20, size - (26 << 20)])
    kind = draw.randrange(5)
    if kind < 3:
        pattern = draw.randint(1, 255)
        print(f' -c "write -P {pattern} {offset} {length}" \\')
        os.pwrite(model, bytes([pattern]) * length, offset)
    else:
        length = min(length * draw.choice([1, 1, 16]), size - offset)
        print(f' -c "{["discard", "write -z", "write -z -u"][draw.randrange(3)]} {offset} {length}" \\')
        os.pwrite(model, bytes(length), offset)
print(' "$URI" >io.out 2>&1')
END
    . ./commands && ! grep -i failed io.out || fail "qemu-io: $(tail -5 io.out)"
    case $round in
        1 | 4) crash; start ;;
        3) stop; start ;;
        5) ctl destage >/dev/null ;;
    esac
    rm -f copy.img copy.qcow2
    nbdcopy "$URI" copy.img
    cmp model.img copy.img || fail "nbdcopy returned different data (round $round)"
    qemu-img convert -f raw -O qcow2 "$URI" copy.qcow2
    qemu-img compare -f raw -F qcow2 model.img copy.qcow2 >/dev/null ||
        fail "qemu-img returned different data (round $round)"
    [ "$(stat -c %b copy.img)" -lt $((200 * MIB / 512)) ] || fail "the copy is not sparse"
done
stop
cmp model.img <(tail -c +$((MIB + 1)) disk.img) || fail "the store does not hold all data"
rm -f disk.img flash.img

# A store behind NBD reports its holes itself, if it can.
nbdkit file --dump-plugin >/dev/null 2>&1 || { echo "no nbdkit here: stores behind NBD were not tried"; exit 0; }
KIT=
more_cleanup() { [ -z "$KIT" ] || kill -KILL "$KIT" 2>/dev/null || true; }
for how in "" --filter=noextents; do
    rm -f disk.img flash.img store.sock
    truncate -s 65M disk.img
    # shellcheck disable=SC2086
    nbdkit -f -U store.sock $how file disk.img &
    KIT=$!
    for _ in $(seq 200); do [ -S store.sock ] && break; sleep 0.05; done
    config flash dram=4MiB flash_size=24MiB size=64MiB backing="nbd+unix:///?socket=$WORK/store.sock"
    start
    io "write -P 7 1M 64k" "discard 1028k 8k"
    told $MIB 4096 data
    told $((MIB + 4096)) 8192 zero
    case $how in
        "") told $((2 * MIB)) $((62 * MIB)) hole,zero ;;
        *) told $((2 * MIB)) $((62 * MIB)) data ;;
    esac
    nbdcopy "$URI" copy.img
    io "read -P 7 1M 4k" "read -P 0 1028k 8k" "read -P 7 1036k 52k" "read -P 0 2M 62M"
    stop
    kill "$KIT"
    wait "$KIT" || true
    KIT=
    cmp copy.img <(tail -c +$((MIB + 1)) disk.img) || fail "the copy differs from the store ($how)"
done
