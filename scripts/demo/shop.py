#!/usr/bin/env python3
"""A small shop on SQLite: the application whose disk the demonstration caches.

    shop.py load DATABASE               items, about 130 MB of them
    shop.py run DATABASE TRANSACTIONS   customers look at items and order some
    shop.py check DATABASE TRANSACTIONS check that every order exists and the database is sound

Every order is one durable transaction. A few items are much more popular than the rest, and from
time to time a report scans part of the items. Every few transactions, the database is dropped
from this machine's page cache, so that its reads reach the disk as on a machine whose memory is
small compared with its data. The random numbers are seeded: the same arguments give the same
statements.
"""

import os
import random
import sqlite3
import sys
import time

ITEMS = 300_000
SEED = 20_261
LOOKED_AT = 8
TRANSACTIONS_PER_CACHE_DROP = 100
TRANSACTIONS_PER_REPORT = 500
ITEMS_PER_REPORT = ITEMS // 50


def open_database(path):
    database = sqlite3.connect(path, isolation_level=None)
    # Write-ahead log with one sync per commit; SQLite's own cache stays at 1 MiB.
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("PRAGMA cache_size = -1024")
    return database


def load(path):
    database = open_database(path)
    rng = random.Random(SEED)
    database.execute(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, stock INTEGER, about BLOB)"
    )
    database.execute(
        "CREATE TABLE purchase (id INTEGER PRIMARY KEY, item INTEGER, at REAL, note BLOB)"
    )
    database.execute("BEGIN")
    database.executemany(
        "INSERT INTO item VALUES (?, ?, ?)",
        (
            (number, 1000, rng.randbytes(rng.randint(300, 500)))
            for number in range(ITEMS)
        ),
    )
    database.execute("COMMIT")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def popular(rng):
    """A random item; half of all choices fall on 6 % of the items, spread over the whole range."""
    rank = int(ITEMS * rng.random() ** 4)
    return rank * 7_919 % ITEMS


def drop_page_cache(path):
    for name in (path, path + "-wal"):
        if os.path.exists(name):
            descriptor = os.open(name, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def run(path, transactions):
    database = open_database(path)
    rng = random.Random(SEED + 1)
    slowest_s, started = 0.0, time.monotonic()
    for number in range(transactions):
        if number % TRANSACTIONS_PER_CACHE_DROP == 0:
            drop_page_cache(path)
        begin = time.monotonic()
        database.execute("BEGIN IMMEDIATE")
        looked_at = [popular(rng) for _ in range(LOOKED_AT)]
        for item in looked_at:
            database.execute(
                "SELECT stock, about FROM item WHERE id = ?", (item,)
            ).fetchone()
        database.execute(
            "UPDATE item SET stock = stock - 1 WHERE id = ?", (looked_at[0],)
        )
        database.execute(
            "INSERT INTO purchase (item, at, note) VALUES (?, ?, ?)",
            (looked_at[0], number, rng.randbytes(200)),
        )
        database.execute("COMMIT")
        slowest_s = max(slowest_s, time.monotonic() - begin)
        if number % TRANSACTIONS_PER_REPORT == TRANSACTIONS_PER_REPORT - 1:
            first = rng.randrange(ITEMS - ITEMS_PER_REPORT)
            database.execute(
                "SELECT sum(stock), sum(length(about)) FROM item WHERE id BETWEEN ? AND ?",
                (first, first + ITEMS_PER_REPORT),
            ).fetchone()
    elapsed_s = time.monotonic() - started
    database.close()
    print(
        f"{transactions} transactions in {elapsed_s:.1f} s, {transactions / elapsed_s:.0f} a "
        f"second, the slowest {slowest_s * 1e3:.0f} ms"
    )


def check(path, transactions):
    database = sqlite3.connect(f"file:{path}?immutable=1", uri=True)
    orders = database.execute(
        "SELECT count(*), count(DISTINCT at) FROM purchase"
    ).fetchone()
    integrity = database.execute("PRAGMA integrity_check").fetchone()[0]
    database.close()
    print(f"{orders[0]} orders, integrity check: {integrity}")
    return 0 if orders == (transactions, transactions) and integrity == "ok" else 1


def main():
    match sys.argv[1:]:
        case ["load", path]:
            load(path)
            return 0
        case ["run", path, transactions]:
            run(path, int(transactions))
            return 0
        case ["check", path, transactions]:
            return check(path, int(transactions))
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
