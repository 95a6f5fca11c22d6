#!/usr/bin/env python3
"""A mail server's store: deliveries, readers, searches and deletions in Maildirs.

    mail.py fill DIRECTORY USERS MESSAGES SEED
    mail.py run DIRECTORY USERS EVENTS SEED

Each message is a file that is written in `tmp`, synced and renamed into `new`, once for each of its
recipients, as a local delivery agent does. Attachments are separate files next to it, as Dovecot
keeps them with `mail_attachment_dir` but without its single-instance storage: an attachment that is
sent twice is stored twice. Names of users and queue identifiers have fixed lengths, so the copies
of a message to a list differ only in their first block. Four processes run in parallel. The random
numbers are seeded, but what a process finds in a mailbox depends on the progress of the others, so
two runs are similar but not identical.
"""

import os
import random
import sys
from multiprocessing import Process
from pathlib import Path

WORKERS = 4
TO_LIST, LIST_MEAN = 0.25, 6
ATTACHED, ATTACHED_KNOWN = 0.2, 0.7
KNOWN_ATTACHMENTS = 300
READ_LATER, ATTACHMENT_OPENED = 3, 0.5
KEPT_PER_USER = 60
# Shares of the events of the run; the remaining events are sessions of readers.
DELIVERIES, SEARCHES = 0.45, 0.01

VOCABULARY = [
    "".join(letters)
    for letters in (
        random.Random(n).choices(
            "etaoinshrdlucmfwypvbgk", k=2 + random.Random(n).randrange(8)
        )
        for n in range(5000)
    )
]


class Store:
    def __init__(self, directory, users, rng, worker):
        self.directory, self.users, self.rng = Path(directory), users, rng
        self.worker, self.delivered = worker, 0

    def mailbox(self, user):
        return self.directory / f"u{user:05}"

    def create(self):
        for user in range(self.users):
            for part in ("tmp", "new", "cur", "attachments"):
                (self.mailbox(user) / part).mkdir(parents=True)

    def user(self):
        """A random user; a quarter of the users have about 60 % of the mail."""
        return int(self.users * self.rng.random() ** 2.7) * 7_919 % self.users

    def text(self):
        words = int(min(20_000, self.rng.lognormvariate(6, 1.2))) + 10
        chosen = self.rng.choices(VOCABULARY, k=words)
        lines = (" ".join(chosen[n : n + 12]) for n in range(0, words, 12))
        return "\n".join(lines)

    def attachment(self):
        """The bytes of an attachment; some attachments are sent repeatedly."""
        if self.rng.random() < ATTACHED_KNOWN:
            number = int(KNOWN_ATTACHMENTS * self.rng.random() ** 3)
        else:
            number = self.rng.getrandbits(48) + KNOWN_ATTACHMENTS
        rng = random.Random(number)
        return rng.randbytes(int(min(1 << 20, rng.lognormvariate(10.8, 1))))

    def deliver(self):
        """Delivers one message to one or several users."""
        recipients = {self.user()}
        if self.rng.random() < TO_LIST:
            count = 1 + int(self.rng.expovariate(1 / LIST_MEAN))
            recipients.update(self.user() for _ in range(count))
        sender, body = self.user(), self.text()
        attached = self.attachment() if self.rng.random() < ATTACHED else None
        for user in sorted(recipients):
            self.delivered += 1
            name = f"{self.worker}{self.delivered:011}"
            head = (
                f"Return-Path: <u{sender:05}@example.org>\n"
                f"Delivered-To: u{user:05}@example.org\n"
                f"Received: by mail.example.org (id {name})\n"
                f"From: u{sender:05}@example.org\nSubject: {body[:40]}\n"
            )
            if attached is not None:
                head += f"X-Attachment: {name}\n"
                write(self.mailbox(user) / "attachments" / name, attached)
            temporary = self.mailbox(user) / "tmp" / name
            write(temporary, f"{head}\n{body}\n".encode())
            temporary.rename(self.mailbox(user) / "new" / name)

    def session(self):
        """A user reads new messages, returns to older ones, and deletes the oldest."""
        mailbox = self.mailbox(self.user())
        for name in sorted(os.listdir(mailbox / "new")):
            path = mailbox / "new" / name
            if self.read(mailbox, path):
                rename(path, mailbox / "cur" / f"{name}:2,S")
        kept = sorted(
            os.listdir(mailbox / "cur"), key=lambda name: name[1:12], reverse=True
        )
        for _ in range(self.rng.randrange(READ_LATER)):
            if kept:
                chosen = int(len(kept) * self.rng.random() ** 2)
                self.read(mailbox, mailbox / "cur" / kept[chosen])
        for name in kept[KEPT_PER_USER:]:
            remove(mailbox / "cur" / name)
            remove(mailbox / "attachments" / name[:12])

    def read(self, mailbox, path):
        message = read(path)
        if b"X-Attachment" in message[:400] and self.rng.random() < ATTACHMENT_OPENED:
            read(mailbox / "attachments" / path.name[:12])
        return bool(message)

    def search(self):
        mailbox = self.mailbox(self.user())
        for part in ("new", "cur"):
            for name in sorted(os.listdir(mailbox / part)):
                read(mailbox / part / name)

    def run(self, events):
        for _ in range(events):
            what = self.rng.random()
            if what < DELIVERIES:
                self.deliver()
            elif what < DELIVERIES + SEARCHES:
                self.search()
            else:
                self.session()


def write(path, data):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    while data:
        data = data[os.write(descriptor, data) :]
    os.fsync(descriptor)
    os.close(descriptor)


# Another reader of the same mailbox may have moved it already.
def read(path):
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def rename(path, to):
    try:
        path.rename(to)
    except FileNotFoundError:
        pass


def remove(path):
    path.unlink(missing_ok=True)


def work(directory, users, events, seed, worker):
    Store(directory, users, random.Random(seed * 10 + worker), worker).run(events)


def main():
    if len(sys.argv) != 6 or sys.argv[1] not in ("fill", "run"):
        print(__doc__, file=sys.stderr)
        return 2
    command, directory, *numbers = sys.argv[1:]
    users, count, seed = map(int, numbers)
    if command == "fill":
        store = Store(directory, users, random.Random(seed), WORKERS)
        store.create()
        os.fsync = lambda descriptor: None
        while store.delivered < count:
            store.deliver()
        return 0
    workers = [
        Process(target=work, args=(directory, users, count // WORKERS, seed + 1, n))
        for n in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return max(abs(worker.exitcode) for worker in workers)


if __name__ == "__main__":
    sys.exit(main())
