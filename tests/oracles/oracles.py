"""What the commands should answer, worked out naively.

Nothing here knows the product's code: caches are lists that are searched from the front, plans are
tried one by one, shares are all enumerated. Slow, and so simple that it can be read.
"""

import csv
from itertools import product

BLOCK = 4096
UNIT = 1 << 20
UNIT_BLOCKS = UNIT // BLOCK
METADATA = 31
NOTHING = float("inf")


def write_trace(path, requests):
    """Requests are (time_ns, volume, op, offset, length)."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time_ns", "volume", "op", "offset", "length"])
        writer.writerows(requests)


def accesses(requests):
    """Each request block by block: (is it a write, block)."""
    for _, volume, op, offset, length in requests:
        for n in range(offset // BLOCK, -(-(offset + length) // BLOCK)):
            yield op == "write", (volume, n)


# ---- LRU ----


def lru_misses(found, blocks, policy="all"):
    """Misses of reads and of writes in a list of so many blocks.

    `all`: everything allocates. `ro`: reads allocate, writes drop the block and never hit. `wo`: writes
    allocate, reads hit what is there.
    """
    cache, misses = [], [0, 0]
    for write, block in found:
        hit = block in cache
        if hit:
            cache.remove(block)
        if policy == "ro" and write:
            misses[1] += 1
            continue
        misses[write] += not hit
        if hit or policy != "wo" or write:
            cache.insert(0, block)
            del cache[blocks:]
    return misses


def distances(found):
    """By access: its distance, and of a write the largest since its block was last written."""
    stack, since_write, out = [], {}, []
    for write, block in found:
        if block in stack:
            distance = stack.index(block)
            stack.pop(distance)
        else:
            distance = NOTHING
        stack.insert(0, block)
        largest = max(since_write.get(block, NOTHING), distance)
        since_write[block] = 0 if write else largest
        out.append((write, distance, largest))
    return out


# ---- plans ----


def usd_of_unit(device, tier1):
    of_byte = device["price_usd"] / (device["capacity_gb"] * 1e9)
    of_metadata = tier1["price_usd"] / (tier1["capacity_gb"] * 1e9)
    return UNIT * of_byte + UNIT_BLOCKS * METADATA * of_metadata


class Workload:
    """What plans need of a trace: distances, and how long it took."""

    def __init__(self, requests):
        self.found = distances(accesses(requests))
        self.days = (requests[-1][0] - requests[0][0]) / 1e9 / 86_400
        reused = [d for _, d, _ in self.found if d != NOTHING]
        self.useful = max(1, -(-(max(reused, default=0) + 1) // UNIT_BLOCKS))

    def judge(self, tiers, backing, units, policy):
        """Cost, mean, 99th percentile, drive writes a day and share of the endurance."""
        (one, two), (units1, units2) = tiers, units
        size1, both = units1 * UNIT_BLOCKS, (units1 + units2) * UNIT_BLOCKS
        r1, w1 = one["read_latency_us"], one["write_latency_us"]
        r2, w2 = two["read_latency_us"], two["write_latency_us"]
        rs, ws = backing["read_latency_us"], backing["write_latency_us"]
        demotion = r1 + w2 if units2 else 0
        through = ws if policy == "write-through" else 0
        times, write_backs, down = [], 0, 0
        for write, distance, rewritten in self.found:
            below = distance >= size1
            down += below
            if not below:
                us = w1 + through if write else r1
            elif write:
                us = w1 + demotion + through
            elif distance < both:
                us = r2 + w1 + demotion
            else:
                us = rs + w1 + demotion
            times.append(us)
            write_backs += write and rewritten >= both
        total = sum(times)
        if policy == "write-back":
            total += write_backs * ((r2 if units2 else r1) + ws)
        times.sort()
        cost = units1 * usd_of_unit(one, one) + units2 * usd_of_unit(two, one)
        written, wear = 0, 0
        fills = sum(w or d >= size1 for w, d, _ in self.found)
        for device, size, blocks in [(one, units1, fills), (two, units2, down)]:
            if device["kind"] == "flash" and size:
                daily = blocks / (size * UNIT_BLOCKS) / self.days
                written = max(written, daily)
                rated = device.get("drive_writes_per_day")
                wear = max(wear, daily / rated if rated else 0)
        slowest = times[-(-99 * len(times) // 100) - 1]
        return cost, total / len(times), slowest, written, wear

    def plans(self, tiers, backing, budget, policy, wear_max):
        """Everything that the money buys and that is useful; flash may be larger to endure."""
        for units1 in range(1, self.useful + 1):
            units2, least = 0, usd_of_unit(tiers[1], tiers[0])
            while units1 * usd_of_unit(*2 * tiers[:1]) + units2 * least <= budget * (
                1 + 1e-12
            ):
                judged = self.judge(tiers, backing, (units1, units2), policy)
                endures = judged[4] <= wear_max * (1 + 1e-9)
                if endures:
                    yield (units1, units2), judged
                rests = wear_max == NOTHING or tiers[1]["kind"] != "flash"
                enough = units1 + units2 >= self.useful
                if enough and (rests or (endures and units2)):
                    break
                units2 += 1


def front(plans):
    """Those that no other beats in one thing without losing in another, as sorted tuples."""
    points = {judged[:4] for _, judged in plans}

    def beaten(b):
        return any(a != b and all(x <= y for x, y in zip(a, b)) for a in points)

    return sorted(point for point in points if not beaten(point))


# ---- shares of volumes ----


def best_shares(requests, units):
    """The most hits that dividing so many units among volumes gives, by trying every division."""
    volumes = sorted({r[1] for r in requests})
    hits = []
    for volume in volumes:
        found = distances(accesses([r for r in requests if r[1] == volume]))
        of = [
            sum(d < size * UNIT_BLOCKS for _, d, _ in found)
            for size in range(units + 1)
        ]
        hits.append(of)
    divisions = product(range(units + 1), repeat=len(volumes))
    return max(
        sum(of[size] for of, size in zip(hits, sizes))
        for sizes in divisions
        if sum(sizes) <= units
    )


# ---- samples ----


def features(requests):
    """The means that samples are compared by; gaps are those to the request before, of either kind."""
    answer = {}
    for op in ["read", "write"]:
        own = [r for r in requests if r[2] == op]
        n = max(len(own), 1)
        answer[f"{op}_size"] = sum(r[4] for r in own) / n
        off = sum(r[3] % BLOCK + -(r[3] + r[4]) % BLOCK for r in own)
        answer[f"{op}_misalignment"] = off / n
        pairs = zip(requests, requests[1:])
        gaps = sum(r[0] - before[0] for before, r in pairs if r[2] == op)
        answer[f"{op}_iat_us"] = gaps / n / 1000
    writes = sum(r[2] == "write" for r in requests)
    answer["write_ratio"] = writes / len(requests)
    return answer


def by_region(requests, bits):
    """Bytes of each operation by region of `4 KiB << bits`."""
    size, out = BLOCK << bits, {}
    for _, volume, op, offset, length in requests:
        at, end = offset, offset + length
        while at < end:
            upto = min(end, (at // size + 1) * size)
            key = (volume, at // size, op)
            out[key] = out.get(key, 0) + upto - at
            at = upto
    return out


# ---- phases ----


def reuse(found):
    """Of one phase: blocks, blocks used again, and the shares of accesses that reuse and that never
    come back."""
    counts = {}
    for _, block in found:
        counts[block] = counts.get(block, 0) + 1
    n = sum(counts.values())
    again = sum(c > 1 for c in counts.values())
    return len(counts), again, (n - len(counts)) / n, (len(counts) - again) / n
