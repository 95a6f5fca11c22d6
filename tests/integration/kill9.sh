# A daemon that is killed at any moment keeps what it acknowledged. FOREBAY_KILLS is the number of
# kills.
. "$(dirname "$0")/lib.sh"
need python3
kills=${FOREBAY_KILLS:-25}
config flash dram=4MiB flash_size=24MiB size=64MiB
python3 "$HERE/kill9.py" "$FOREBAY" forebay.toml "$kills" acknowledged
rm -f disk.img flash.img
config flash dram=4MiB flash_size=24MiB size=64MiB ack=dram
python3 "$HERE/kill9.py" "$FOREBAY" forebay.toml "$kills" flushed
