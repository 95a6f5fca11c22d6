# Names of volumes may contain any characters: an order for a volume reaches that volume.
. "$(dirname "$0")/lib.sh"
need qemu-io
names=('vm1' 'vm1#x' 'vm1?x' 'a "b" c' 'a%20b' 'ü/..')
encoded=('vm1' 'vm1%23x' 'vm1%3Fx' 'a%20%22b%22%20c' 'a%2520b' '%C3%BC%2F..')
config
sed -i '/^\[\[volume\]\]/,/^layout/d' forebay.toml
for n in "${!names[@]}"; do
    printf "[[volume]]\nname = '%s'\nbacking = '%s'\nsize = '1MiB'\nlayout = 'none'\n" "${names[n]}" "$WORK/$n.img"
done >>forebay.toml
start
for n in "${!names[@]}"; do of "${encoded[n]}" "write -P 1 0 4k" flush 'read -P 1 0 4k'; done
for n in "${!names[@]}"; do
    # Another program changes the store.
    head -c 4k /dev/zero | tr '\0' '\2' | dd of="$n.img" conv=notrunc status=none
    of "${encoded[n]}" 'read -P 1 0 4k'
    ctl invalidate "${names[n]}" >/dev/null || fail "${names[n]} cannot be invalidated"
    of "${encoded[n]}" 'read -P 2 0 4k'
    for other in $(seq $((n + 1)) $((${#names[@]} - 1))); do of "${encoded[other]}" 'read -P 1 0 4k'; done
done
refused 1 'no volume' ctl invalidate 'vm1#y'
stop
