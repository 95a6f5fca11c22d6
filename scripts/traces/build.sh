# A build server with little memory: Debian with a C compiler on the volume itself. Sources are
# unpacked, searched, built (the small ones), compared with those of the previous round, packed and
# deleted.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

BUILD_ROUNDS=${BUILD_ROUNDS:-7}
BUILD_MEMORY=${BUILD_MEMORY:-112}
BUILD_SOURCES=${BUILD_SOURCES:-zlib bzip2 lua5.4 busybox git python3.11 tcl8.6}

build_about() {
    say "a build server, $BUILD_ROUNDS rounds of unpacking, searching, building, comparing and packing" \
        "$BUILD_SOURCES, $BUILD_MEMORY MiB of memory"
}

build_packages() { say "mmdebstrap:mmdebstrap unshare:util-linux"; }

build_configure() { volume build 4GiB; }

# Downloads Debian with a compiler, and the sources. They are kept for later runs.
build_fetch() {
    local keep="$TRACES/cache/build"
    [ ! -e "$keep/complete" ] || return 0
    rm -rf "$keep"
    mkdir -p "$keep"
    say "    fetching Debian, a compiler and sources (kept in $keep)"
    mmdebstrap --quiet --mode=root --variant=minbase \
        --include=gcc,libc6-dev,make,xz-utils,bzip2,perl,ca-certificates \
        --customize-hook='echo "deb-src http://deb.debian.org/debian bookworm main" >"$1/etc/apt/sources.list.d/sources.list"' \
        --customize-hook='chroot "$1" apt-get -qq update' \
        --customize-hook="chroot \"\$1\" sh -ec 'mkdir -p /usr/src/packed; cd /usr/src/packed; apt-get -qq source --download-only $BUILD_SOURCES'" \
        bookworm "$keep/image.tar" http://deb.debian.org/debian >"$scratch/fetch.log" 2>&1 ||
        fail "fetching Debian failed: $(tail -n 3 "$scratch/fetch.log")"
    touch "$keep/complete"
}

build_prepare() { tar -C "$scratch/build" -xf "$TRACES/cache/build/image.tar"; }

build_run() {
    local round order
    limit_memory $((BUILD_MEMORY << 20))
    for round in $(seq "$BUILD_ROUNDS"); do
        drop_page_cache
        # The order changes, so that a job does not always find what the same predecessor left
        # behind.
        mapfile -t order < <(printf '%s\n' $BUILD_SOURCES | shuf --random-source=<(yes "$SEED $round"))
        inside build sh -exc '
            round=$1
            shift
            mkdir -p /srv/jobs
            for source; do
                job=/srv/jobs/$source-$round
                mkdir "$job"
                tar -C "$job" --strip-components=1 -xf "$(ls /usr/src/packed/"$source"_*.orig.tar.*)"
            done
            for source; do
                cd "/srv/jobs/$source-$round"
                # What a linter, a licence check and an index of symbols do: read every file.
                grep -rl malloc . >/srv/jobs/malloc.txt || test $? = 1
                find . -type f -print0 | xargs -0 md5sum >/srv/jobs/sums.txt
                case "$source" in
                    zlib) ./configure && make -j2 CFLAGS=-O1 ;;
                    bzip2) make -j2 CFLAGS=-O1 libbz2.a bzip2 ;;
                    lua*) make -j2 linux CFLAGS="-O1 -DLUA_USE_POSIX" ;;
                esac
                # Differences from the previous round, for a report; then the package.
                last=/srv/jobs/$source-$((round - 1))
                test ! -e "$last" || diff -qr "$last" . >/srv/jobs/changes.txt || test $? = 1
                tar -cf "/srv/jobs/$source.tar" .
                cd /
            done
            # The results of this round stay; those of the previous round are deleted.
            rm -rf /srv/jobs/*-$((round - 1))
        ' sh "$round" "${order[@]}"
    done
    end_limited
}
