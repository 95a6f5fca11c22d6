# qemu-img converts an image into the cache, compares it and converts it back.
. "$(dirname "$0")/lib.sh"
need qemu-img
config flash
head -c 100M /dev/urandom >in.img
truncate -s 256M in.img
start
qemu-img convert -n -f raw -O raw in.img "$URI"
qemu-img compare -f raw -F raw in.img "$URI"
qemu-img convert -f raw -O qcow2 "$URI" out.qcow2
qemu-img compare -f raw -F qcow2 in.img out.qcow2
stop
