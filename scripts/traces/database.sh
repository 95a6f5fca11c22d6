# PostgreSQL under pgbench: bank accounts as in TPC-B, some of them much more popular than the
# others, and now and then a report over a range of them.
# shellcheck disable=SC2154 # the script that sources this sets $scratch

DATABASE_SCALE=${DATABASE_SCALE:-40}
DATABASE_CLIENTS=${DATABASE_CLIENTS:-4}
DATABASE_TRANSACTIONS=${DATABASE_TRANSACTIONS:-170000}
DATABASE_MEMORY=${DATABASE_MEMORY:-96}

database_about() {
    say "PostgreSQL, pgbench at scale $DATABASE_SCALE, $DATABASE_TRANSACTIONS transactions of" \
        "$DATABASE_CLIENTS clients, $DATABASE_MEMORY MiB of memory"
}

database_packages() { say "pgbench:postgresql"; }

database_configure() { volume database 3GiB; }

# postgres COMMAND...: runs a PostgreSQL command; these are in a directory of their version.
postgres() {
    local command=$1
    shift
    limited setpriv --reuid=postgres --regid=postgres --init-groups "$POSTGRES/$command" "$@"
}

start_postgres() {
    mkdir -p "$scratch/socket"
    chown postgres: "$scratch/socket"
    postgres pg_ctl -D "$scratch/database/data" -l "$scratch/socket/postgres.log" -w -s start \
        -o "-c listen_addresses='' -c unix_socket_directories=$scratch/socket"
}

stop_postgres() { postgres pg_ctl -D "$scratch/database/data" -w -s -m fast stop; }

database_prepare() {
    POSTGRES="$(dirname "$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)")"
    limit_memory $((1 << 30))
    chown postgres: "$scratch/database"
    postgres initdb -D "$scratch/database/data" --no-sync --auth=trust --locale=C --encoding=UTF8 >/dev/null
    cat >>"$scratch/database/data/postgresql.conf" <<CONFIGURATION
shared_buffers = 32MB
max_wal_size = 256MB
checkpoint_timeout = 1min
bgwriter_lru_maxpages = 200
CONFIGURATION
    start_postgres
    postgres pgbench -h "$scratch/socket" -i -q -s "$DATABASE_SCALE" postgres >"$scratch/pgbench.log" 2>&1
    stop_postgres
    end_limited
}

database_run() {
    cat >"$scratch/transfer.sql" <<SQL
\set aid random_zipfian(1, 100000 * :scale, 1.05)
\set aid permute(:aid - 1, 100000 * :scale) + 1
\set bid random(1, :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
SQL
    cat >"$scratch/look.sql" <<SQL
\set aid random_zipfian(1, 100000 * :scale, 1.05)
\set aid permute(:aid - 1, 100000 * :scale) + 1
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
SQL
    cat >"$scratch/report.sql" <<SQL
\set first random(1, 95000 * :scale)
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 2000 * :scale;
SQL
    limit_memory $((DATABASE_MEMORY << 20))
    start_postgres
    pgbench -h "$scratch/socket" -U postgres -n -s "$DATABASE_SCALE" -c "$DATABASE_CLIENTS" -j 1 --random-seed="$SEED" \
        -t $((DATABASE_TRANSACTIONS / DATABASE_CLIENTS)) -f "$scratch/transfer.sql@400" \
        -f "$scratch/look.sql@600" -f "$scratch/report.sql@1" postgres >"$scratch/pgbench.log" 2>&1 &
    # In the background with `wait`, so that a signal to the script takes effect at once.
    wait "$!" || fail "pgbench: $(tail -n 1 "$scratch/pgbench.log")"
    stop_postgres
    end_limited
    grep -E '^(tps|latency average)' "$scratch/pgbench.log" | sed 's/^/    /'
}
