# Two servers start at once, with the same files, which do not exist yet, and different sockets: one
# serves and the other is refused, and what was written through the first is finally on its store,
# under its name.
. "$(dirname "$0")/lib.sh"
need qemu-io
for flash in flash ''; do
    rm -f disk.img flash.img
    for round in $(seq 8); do
        mkdir "$round$flash"
        cd "$round$flash" || exit
        pids=()
        for n in 1 2; do
            WORK=$PWD config $flash size=16MiB
            sed "s|sock\"|sock$n\"|" forebay.toml >"$n.toml"
            "$FOREBAY" serve --config "$n.toml" >"ready$n" 2>"log$n" &
            pids+=($!)
        done
        more_cleanup() { kill -KILL "${pids[@]}" 2>/dev/null || true; }
        serves=
        for _ in $(seq 600); do
            for n in 1 2; do [ ! -s "ready$n" ] || serves=$n; done
            [ -z "$serves" ] || break
            kill -0 "${pids[0]}" 2>/dev/null || kill -0 "${pids[1]}" 2>/dev/null || break
            sleep 0.05
        done
        [ -n "$serves" ] || fail "neither serves: $(cat log1 log2)"
        refused=$((3 - serves))
        got=0
        wait "${pids[refused - 1]}" || got=$?
        [ "$got" = 1 ] || fail "both serve, or status $got: $(cat "log$refused")"
        grep -qE 'in use|already serves|too small' "log$refused" || fail "said: $(cat "log$refused")"
        URI="nbd+unix:///?socket=$PWD/nbd.sock$serves" io 'write -P 7 0 4k' flush
        kill -TERM "${pids[serves - 1]}"
        wait "${pids[serves - 1]}" || fail "the stop: $(cat "log$serves")"
        [ -e disk.img ] || fail "the store is gone"
        cmp -n 4096 -i 1048576:0 disk.img <(head -c 4k /dev/zero | tr '\0' '\7') || fail "not on the store"
        cd ..
    done
done
