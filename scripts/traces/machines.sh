# Small Debian installations side by side, each on a volume of its own, all from one image: they are
# set up, get the packages of their role, are updated, and run for some days.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

MACHINES=${MACHINES:-4}
MACHINES_DAYS=${MACHINES_DAYS:-5}
MACHINES_MEMORY=${MACHINES_MEMORY:-192}
MACHINE_ROLES=("nginx-light" "git gcc libc6-dev make" "bind9" "exim4-daemon-light dovecot-core")

machines_about() {
    say "$MACHINES Debian installations from one image, each with a role, its updates and" \
        "$MACHINES_DAYS days of life, $MACHINES_MEMORY MiB of memory"
}

machines_packages() { say "mmdebstrap:mmdebstrap unshare:util-linux"; }

machines_configure() {
    local n
    for n in $(seq "$MACHINES"); do volume "machine$n" 2GiB; done
}

# Downloads the image, as of the last point release of Debian, and the packages that machines
# install later, as of its updates. They are kept for later runs.
machines_fetch() {
    local keep="$TRACES/cache/machines" updates=()
    [ ! -e "$keep/complete" ] || return 0
    rm -rf "$keep"
    mkdir -p "$keep"
    say "    fetching Debian and packages for the machines (kept in $keep)"
    updates+=("deb http://deb.debian.org/debian-security bookworm-security main")
    updates+=("deb http://deb.debian.org/debian bookworm-updates main")
    mmdebstrap --quiet --mode=root --variant=minbase --skip=cleanup/apt \
        --include=python3-minimal,perl,man-db,cron,rsyslog,vim-tiny,less,ca-certificates,openssh-server,procps,iproute2 \
        --customize-hook="printf '%s\n' '${updates[0]}' '${updates[1]}' >\"\$1/etc/apt/sources.list.d/updates.list\"" \
        --customize-hook='chroot "$1" apt-get -qq update' \
        --customize-hook='chroot "$1" apt-get -qq -y -d dist-upgrade' \
        --customize-hook="chroot \"\$1\" apt-get -qq -y -d --no-install-recommends install ${MACHINE_ROLES[*]}" \
        --customize-hook="copy-out /var/cache/apt/archives '$keep'" \
        --customize-hook='rm -f "$1"/var/cache/apt/archives/*.deb' \
        bookworm "$keep/image.tar" http://deb.debian.org/debian >"$scratch/fetch.log" 2>&1 ||
        fail "fetching Debian failed: $(tail -n 3 "$scratch/fetch.log")"
    touch "$keep/complete"
}

machines_prepare() { :; }

machines_run() {
    local n day keep="$TRACES/cache/machines"
    limit_memory $((MACHINES_MEMORY << 20))
    for n in $(seq "$MACHINES"); do
        limited tar -C "$scratch/machine$n" -xf "$keep/image.tar"
        say "machine$n" >"$scratch/machine$n/etc/hostname"
        # Services must not start in a chroot.
        printf '#!/bin/sh\nexit 101\n' >"$scratch/machine$n/usr/sbin/policy-rc.d"
        chmod 755 "$scratch/machine$n/usr/sbin/policy-rc.d"
    done
    drop_page_cache
    for n in $(seq "$MACHINES"); do
        # For its disk, each machine seems to download its own packages.
        limited cp "$keep"/archives/*.deb "$scratch/machine$n/var/cache/apt/archives/"
        # shellcheck disable=SC2086
        inside "machine$n" apt-get -qq -y --no-download --no-install-recommends install \
            ${MACHINE_ROLES[(n - 1) % ${#MACHINE_ROLES[@]}]}
    done
    drop_page_cache
    for day in $(seq "$MACHINES_DAYS"); do
        for n in $(seq "$MACHINES"); do
            machine_day "$n" "$day"
        done
        drop_page_cache
    done
    end_limited
}

# One day: the start in the morning, some work, and the nightly jobs of cron; on the second day also
# updates.
machine_day() {
    [ "$2" != 2 ] || inside "machine$1" apt-get -qq -y --no-download dist-upgrade
    inside "machine$1" perl -e '
        use File::Find;
        my ($seed) = @ARGV;
        srand($seed);
        # The start: libraries, programs and settings, mostly the same ones each day.
        my @files;
        find({ wanted => sub { push @files, $_ if -f $_ && !-l $_ }, no_chdir => 1 },
            "/etc", "/usr/bin", "/usr/sbin", "/usr/lib", "/usr/share", "/var/lib");
        for my $name (sort @files) {
            my $wanted = $name =~ m{^/(etc|usr/sbin)/} || rand() < 0.3;
            next unless $wanted;
            open(my $file, "<", $name) or next;
            my $data;
            1 while read($file, $data, 1 << 16);
        }
        # Work: logs grow, line by line.
        open(my $log, ">>", "/var/log/syslog") or die;
        for my $n (1 .. 20000) {
            print $log "line $n of ", int(rand(1e9)), " of a service that says what it does\n";
        }
    ' "$((SEED * 100 + $1))"
    # The night: a walk over all files that lists the new ones, and a check of the files of all
    # packages.
    inside "machine$1" sh -c 'find / -xdev -newer /etc/hostname >/var/lib/newer.txt; dpkg --verify || true'
}
