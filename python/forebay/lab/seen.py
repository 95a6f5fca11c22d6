"""Knowledge of a workload before the configured cache is simulated: features, curves and
miniatures.

A miniature is a small cache with a sample of the trace, simulated with times. If the sample has a
tenth of the trace's blocks, for example, the miniature's tiers have a tenth of the sizes in
question. The miniature shows what a second tier, or an admission policy for it, would change. The
sample keeps whole regions of 1 MiB, because neighbouring blocks are often used together, and
because sequential runs that are cut short no longer gain from larger blocks.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from forebay._run import ForebayError, run
from forebay.lab.values import number, toml

#: Smaller gains do not count: of mean latency, of the hit ratio, and of the bytes written to flash.
LATENCY_GAIN_MIN, HIT_GAIN_MIN, WRITES_GAIN_MIN = 0.05, 0.01, 0.1
#: To write less to flash, an admission policy may be slower than the fastest one by this share of
#: its mean latency.
SLOWER_MAX = 0.02
POLICIES, BLOCKS = ("arc", "s3-fifo", "lfu"), ("16KiB", "64KiB")
#: Admission policies to compare, with their default parameters.
ADMISSIONS = ("nhit", "smq", "random")
#: The smallest memory of a cache, in its blocks.
DRAM_BLOCKS_MIN = 64
#: Cost of a sequential read from a disk, as a share of that of a read with a seek.
SEQUENTIAL_COST = 0.1
#: Number of blocks in the sample for comparing replacement policies, and in that for miniatures.
POLICY_SAMPLE_BLOCKS, MINIATURE_BLOCKS = 20_000, 20_000
#: Number of samples on which a miniature is simulated, if the trace has enough blocks.
MINIATURES = 2
#: Region size of a miniature's sample: 4 KiB shifted left by this number of bits.
REGION_BITS = 8
#: Layout of flash, in miniatures and in training.
LAYOUT = "slots"
#: The smallest tiers of a miniature.
DRAM_BYTES_MIN, FLASH_BYTES_MIN = 256 * 1024, 512 * 1024
#: Number of sizes to try, to find a flash tier that holds a given number of blocks.
FLASH_TRIES = 8
#: Above this size, a flash tier is assumed to hold the same share of its bytes in blocks as at this
#: size.
FLASH_BYTES_MEASURED = 1 << 30
#: Admission policies that remember blocks: by default as many as flash holds.
REMEMBERING = ("nhit", "smq")
#: Number of requests in flight, in miniatures and in training.
QUEUE_DEPTH = 8

#: Cache sizes in bytes, and the hit ratios at each: of all accesses, of reads, of writes.
Curve = list[tuple[int, float, float, float]]


class Sizes(NamedTuple):
    """Sizes of memory and of a second tier, in bytes."""

    dram: float
    flash: float
    #: Whether the question of admission to the second tier is asked.
    admission: bool = True


@dataclass(frozen=True)
class Outcome:
    """The simulated result of an admission policy, or of a cache without a second tier."""

    latency_us: float
    flash_bytes: float


@dataclass(frozen=True)
class Seen:
    """Knowledge of a workload before the cache is simulated."""

    name: str
    footprint_bytes: int
    base: dict[str, float]
    curve: Curve
    #: Request-level curves by block size: of all requests, and of reads if writes invalidate
    #: blocks.
    requests: dict[str, Curve]
    of_reads: dict[str, Curve]
    #: Curves of replacement policies, measured on a sample.
    policies: dict[str, Curve]
    #: Results of miniatures, by the sizes of memory and flash and by admission policy; size 0 means
    #: no flash.
    miniatures: dict[tuple[float, float, str], Outcome]
    #: By memory size and block size: the share of the mean latency that a miniature gains over 4
    #: KiB.
    block_gains: dict[tuple[float, str], float]

    def document(self) -> dict[str, Any]:
        """The same knowledge in JSON types."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        known["miniatures"] = [
            [*key, one.latency_us, one.flash_bytes]
            for key, one in self.miniatures.items()
        ]
        known["block_gains"] = [[*key, gain] for key, gain in self.block_gains.items()]
        return known

    @classmethod
    def of_document(cls, known: Mapping[str, Any]) -> Seen:
        tiers = {
            (dram, flash, policy): Outcome(latency_us, flash_bytes)
            for dram, flash, policy, latency_us, flash_bytes in known["miniatures"]
        }
        gains = {(dram, block): gain for dram, block, gain in known["block_gains"]}
        return cls(**{**known, "miniatures": tiers, "block_gains": gains})

    def features(self, dram_bytes: float, flash_bytes: float) -> dict[str, float]:
        both_bytes = dram_bytes + flash_bytes
        one, both = _at(self.curve, dram_bytes), _at(self.curve, both_bytes)
        sampled = {
            name: _at(curve, dram_bytes)[0] for name, curve in self.policies.items()
        }
        gains = {policy: sampled[policy] - sampled["lru"] for policy in POLICIES}

        def saved(
            curves: dict[str, Curve], block: str, size_bytes: float, sequential: float
        ) -> float:
            """The share of work that a cache saves the backing store, relative to a memory with 4
            KiB blocks.
            """
            works = (
                self._work(curves[b], size, sequential)
                for b, size in (("4KiB", dram_bytes), (block, size_bytes))
            )
            before, after = works
            return 1 - after / max(before, 1e-9)

        blocks = {
            f"lead_{name}{block}": lead
            for name, curves in (("", self.requests), ("of_reads_", self.of_reads))
            for block, lead in _leads(
                {
                    block: saved(curves, block, dram_bytes, 1.0)
                    for block in BLOCKS
                    if dram_bytes >= DRAM_BLOCKS_MIN * (number(block) or 0)
                },
                BLOCKS,
                LATENCY_GAIN_MIN,
            ).items()
        }
        return {
            **self.base,
            "dram_share": dram_bytes / self.footprint_bytes,
            "flash_share": flash_bytes / self.footprint_bytes,
            "hit_dram": one[0],
            "hit_gain": both[0] - one[0],
            "hit_all": self.curve[-1][1],
            "seeks_saved": saved(self.requests, "4KiB", both_bytes, SEQUENTIAL_COST),
            "seeks_saved_of_reads": saved(
                self.of_reads, "4KiB", both_bytes, SEQUENTIAL_COST
            ),
            **{
                f"lead_{policy}": lead
                for policy, lead in _leads(gains, POLICIES, HIT_GAIN_MIN).items()
            },
            **blocks,
            **self._small(dram_bytes, flash_bytes),
        }

    def _small(self, dram_bytes: float, flash_bytes: float) -> dict[str, float]:
        """The results of miniatures about a second tier and admission to it."""
        none = self.miniatures.get((dram_bytes, 0, "always"))
        tried = {
            policy: one
            for (dram, flash, policy), one in self.miniatures.items()
            if (dram, flash) == (dram_bytes, flash_bytes) and flash
        }
        if none is None or "always" not in tried:
            # Assume a tier that changes nothing, whatever the admission policy.
            none = Outcome(1.0, 0.0)
            tried = {"always": none}
        always = tried["always"]
        worth = admission_worth(tried)
        spared = {policy: worth[policy] for policy in ADMISSIONS if policy in worth}
        gains = {b: one for (dram, b), one in self.block_gains.items() if dram == dram_bytes}  # fmt: skip
        # How far a gain exceeds the minimum is not informative. Policies that are too slow are
        # worth less than -1; without this limit a tree would put its threshold in the middle of
        # that gap, where the training set has no workload.
        limited = {
            name: min(max(lead, -WRITES_GAIN_MIN), WRITES_GAIN_MIN)
            for name, lead in _leads(spared, ADMISSIONS, worth["always"]).items()
        }
        leads = {
            **limited,
            **_leads(gains, BLOCKS, LATENCY_GAIN_MIN),
        }
        made = {"small_gain": 1 - always.latency_us / none.latency_us}
        made |= {f"small_lead_{name}": lead for name, lead in leads.items()}
        return made

    def _work(self, curve: Curve, size_bytes: float, sequential: float) -> float:
        """The work of the backing store, in requests: reads that miss, and all writes.

        A sequential read counts as `sequential` of a read with a seek.
        """
        reads, share = self.base["read_share"], self.base["sequential_share"]
        weight = 1 - (1 - sequential) * share
        return reads * (1 - _at(curve, size_bytes)[1]) * weight + 1 - reads


def _at_least_a_block(sizes: Sequence[int], block: str = "4KiB") -> list[int] | None:
    """The sizes at which a cache has room for at least one block; in a smaller cache, nothing hits.

    >>> _at_least_a_block([100, 16384, 70000], "16KiB")
    [16384, 70000]
    """
    return [size for size in sizes if size >= (number(block) or 0)] or None


def _leads(
    gains: Mapping[str, float], names: Sequence[str], least: float
) -> dict[str, float]:
    """How far the gain of each name exceeds those of all others and `least`; -1 if it cannot be
    chosen.

    A tree compares features with thresholds only, not with each other.
    """
    return {
        name: gains[name] - max([least, *(gains[o] for o in gains if o != name)])
        if name in gains
        else -1.0
        for name in names
    }


def _at(curve: Curve, size_bytes: float) -> tuple[float, float, float]:
    found = (0.0, 0.0, 0.0)
    for size, *hits in curve:
        if size > size_bytes:
            break
        found = (hits[0], hits[1], hits[2])
    return found


def admission_worth(
    tried: Mapping[str, Outcome], tolerance: float = SLOWER_MAX
) -> dict[str, float]:
    """The worth of each admission policy: the share of `always`'s writes to flash that it saves.

    A policy whose mean latency exceeds that of the fastest one by more than `tolerance` is worth -1
    or less, regardless of its savings; the slower, the less. `always` is worth the smallest gain
    that counts.

    >>> tried = {"always": Outcome(100, 50), "nhit": Outcome(101, 20), "smq": Outcome(130, 10)}
    >>> admission_worth(tried)
    {'always': 0.1, 'nhit': 0.6, 'smq': -1.3}
    """
    fastest = min(one.latency_us for one in tried.values())
    most = tried["always"].flash_bytes

    def worth(policy: str, one: Outcome) -> float:
        slower = one.latency_us / fastest - 1 if fastest else 0.0
        if slower > tolerance:
            return -1 - round(slower, 6)
        if policy == "always":
            return WRITES_GAIN_MIN
        return 1 - one.flash_bytes / most if most else 0.0

    return {policy: worth(policy, one) for policy, one in tried.items()}


def look(
    trace: str | Path,
    sizes: Callable[[int], Sequence[Sizes]],
    words: Mapping[str, Any] | None = None,
) -> Seen:
    """Reads a trace about ten times, for its features, curves at the sizes in question, curves of
    policies, and a sample.

    `sizes` returns the sizes in question, given the bytes of the trace's distinct blocks.
    """
    options = {"rows": False, **(words or {})}
    info = run("trace info", trace, **options).document
    accesses = info["block_accesses"]["all"]
    footprint = info["footprint_blocks"]["all"]
    if not accesses:
        raise ForebayError(f"{trace}: no request reads or writes data", 1)
    asked = sizes(footprint * 4096)
    drams = sorted({int(one.dram) for one in asked})
    totals = sorted({*drams, *(int(one.dram + one.flash) for one in asked)})

    def curve(distance: str, block: str) -> Curve:
        how = {"request_level": True, "distance": distance, "block_size": block}
        at = _at_least_a_block(totals, block)
        return _curve(run("mrc", trace, points=40, at=at, **how, **options).document)

    kinds = ("4KiB", *BLOCKS)
    # Measured on a sample if the trace has enough blocks.
    sample = min(1.0, POLICY_SAMPLE_BLOCKS / max(1, footprint))
    policies = run(
        "mrc",
        trace,
        policy=",".join(["lru", *POLICIES]),
        sample=None if sample == 1 else sample,
        at=_at_least_a_block(drams),
        points=2,
        **options,
    ).document
    whole = run(
        "mrc", trace, points=400, at=_at_least_a_block(totals), **options
    ).document
    with tempfile.TemporaryDirectory(prefix="forebay-advise-") as scratch:
        small = _Miniatures(trace, footprint, options, Path(scratch))
        miniatures, block_gains = small.tiers(asked), small.block_gains(asked)
    return Seen(
        name=str(trace),
        footprint_bytes=footprint * 4096,
        base=_base(info),
        curve=_curve(whole),
        requests={block: curve("trd", block) for block in kinds},
        of_reads={block: curve("lru-ro", block) for block in kinds},
        policies={
            one["policy"]: _curve({**policies, **one}) for one in policies["policies"]
        },
        miniatures=miniatures,
        block_gains=block_gains,
    )


class _Sample(NamedTuple):
    """A sample of a trace."""

    path: Path
    #: The share of the trace's blocks that it contains.
    share: float


class _Miniatures:
    """Simulates small caches on samples that have no block in common."""

    def __init__(
        self,
        trace: str | Path,
        footprint: int,
        options: Mapping[str, Any],
        scratch: Path,
    ) -> None:
        self._trace, self._options, self._scratch = Path(trace), options, scratch
        self._footprint = footprint
        self._rate = _rate(MINIATURE_BLOCKS / footprint)
        self._samples: dict[float, list[_Sample]] = {1.0: [_Sample(self._trace, 1.0)]}
        self._held: dict[float, float] = {}

    def tiers(self, asked: Sequence[Sizes]) -> dict[tuple[float, float, str], Outcome]:
        """Simulates caches of one tier and of two, the latter with each admission policy in
        question.
        """
        made = {}
        for dram, flash, admission in asked:
            kinds = [(0.0, "always")]
            if flash:
                more = ADMISSIONS if admission else ()
                kinds += [(flash, policy) for policy in ("always", *more)]
            for key in ((dram, *kind) for kind in kinds):
                if key not in made:
                    made[key] = self._tier(*key)
        return made

    def block_gains(self, asked: Sequence[Sizes]) -> dict[tuple[float, str], float]:
        """The gains of larger blocks, if the memory has room for enough of them.

        Larger blocks need a larger memory, and therefore a larger sample.
        """
        made = {}
        usual: dict[tuple[float, ...], float] = {}
        for dram, block in itertools.product({one.dram for one in asked}, BLOCKS):
            least = DRAM_BLOCKS_MIN * int(number(block) or 0)
            if dram < least:
                continue
            rate = max(self._rate, _rate(least / dram))
            memory = [max(int(dram * one.share), least) for one in self._of(rate)]
            if (rate, *memory) not in usual:
                values = [{"cache.dram": one} for one in memory]
                usual[rate, *memory] = self._run(rate, values).latency_us
            values = [{"cache.dram": one, "cache.block_size": block} for one in memory]
            found = self._run(rate, values).latency_us
            made[dram, block] = 1 - found / usual[rate, *memory]
        return made

    def _tier(self, dram: float, flash: float, policy: str) -> Outcome:
        each = []
        for sample in self._of(self._rate):
            memory = max(int(dram * sample.share), DRAM_BYTES_MIN)
            values: dict[str, Any] = {"cache.dram": memory}
            if flash:
                values |= self._flash(flash, sample.share, policy)
            each.append(values)
        return self._run(self._rate, each)

    def _flash(self, size: float, share: float, policy: str) -> dict[str, Any]:
        """A flash tier for a sample: it holds, and its admission policy remembers, `share` of the
        blocks of a tier of `size`.

        A small device uses a larger share of its bytes for its journal and for spare cells. With
        only `share` of the bytes, it would hold a smaller share of the blocks.
        """
        own = max(int(size), FLASH_BYTES_MIN)
        values: dict[str, Any] = {
            "flash.path": str(self._scratch / "flash"),
            "flash.layout": LAYOUT,
            "admission.policy": policy,
        }
        if share < 1:
            wanted = self._holds(size) * share
            own = self._bytes_for(wanted, int(size * share))
            if policy in REMEMBERING:
                remembered = wanted / self._holds(own)
                values["admission.history"] = round(min(max(remembered, 0.01), 10), 4)
        return {**values, "flash.size": own}

    def _bytes_for(self, wanted: float, guess: int) -> int:
        """Among a few sizes tried, the one at which flash holds the number of blocks nearest to
        `wanted`.
        """
        tried: dict[int, float] = {}
        own = max(guess, FLASH_BYTES_MIN)
        while own not in tried and len(tried) < FLASH_TRIES:
            tried[own] = wanted - self._holds(own)
            own = max(own + round(tried[own]) * 4096, FLASH_BYTES_MIN)
        return min(tried, key=lambda one: abs(tried[one]))

    def _holds(self, size: float) -> float:
        """The number of blocks for which a flash tier of this size has room."""
        if size not in self._held:
            measured = min(max(int(size), FLASH_BYTES_MIN), FLASH_BYTES_MEASURED)
            values = {
                "cache.dram": DRAM_BYTES_MIN,
                "flash.path": str(self._scratch / "flash"),
                "flash.layout": LAYOUT,
                "flash.size": measured,
            }
            said = self._simulate(self._trace, values, {**self._options, "limit": 1})
            times = max(1.0, size / measured)
            self._held[size] = said["capacity_blocks"]["tier2"] * times
        return self._held[size]

    def _run(self, rate: float, values: Sequence[Mapping[str, Any]]) -> Outcome:
        """Simulates the samples of a rate, with separate values for each."""
        latency_us = flash_bytes = requests = 0.0
        for sample, own in zip(self._of(rate), values, strict=True):
            whole = sample.path == self._trace
            words = self._options if whole else {"rows": False}
            said = self._simulate(sample.path, own, words)
            requests += said["requests"]
            latency_us += said["latency_us"]["all"]["mean"] * said["requests"]
            flash_bytes += said["tier2_bytes_written"]
        return Outcome(latency_us / requests, flash_bytes)

    def _simulate(
        self, trace: Path, values: Mapping[str, Any], words: Mapping[str, Any]
    ) -> Any:
        config = self._scratch / "cache.toml"
        lines = [f"{key} = {toml(value)}\n" for key, value in values.items()]
        config.write_text("".join(lines), encoding="utf-8")
        options = {"config": config, "queue_depth": QUEUE_DEPTH, **words}
        return run("simulate", trace, **options).document

    def _of(self, rate: float) -> list[_Sample]:
        """The samples of a rate, taken on first use."""
        if rate not in self._samples:
            home = self._scratch / f"{rate:.6f}"
            home.mkdir()
            how = {"bits": REGION_BITS, "samples": min(MINIATURES, round(1 / rate))}
            output = home / "sample.parquet"
            run("sample", self._trace, output=output, rate=rate, **how, **self._options)
            self._samples[rate] = [
                _Sample(path, self._share(path)) for path in sorted(home.iterdir())
            ]
        return self._samples[rate]

    def _share(self, sample: Path) -> float:
        """The share of the trace's blocks in a sample. Regions differ, so it is more or less than
        the rate.
        """
        info = run("trace info", sample, rows=False).document
        return info["footprint_blocks"]["all"] / self._footprint


def _rate(least: float) -> float:
    """The smallest rate of the form 1/n that is at least `least`, and at most 1.

    >>> _rate(0.3), _rate(0.5), _rate(0.7), _rate(4)
    (0.3333333333333333, 0.5, 1.0, 1.0)
    """
    return 1 / max(1, int(1 / least))


def _base(info: Mapping[str, Any]) -> dict[str, float]:
    """The features that do not depend on the sizes of tiers."""
    features = info["features"]
    requests = max(1, info["reads"] + info["writes"])

    def of(name: str) -> float:
        value = features.get(name)
        return 0.0 if value is None or not math.isfinite(value) else float(value)

    return {
        "read_share": info["reads"] / requests,
        "accesses_per_block": info["block_accesses"]["all"]
        / info["footprint_blocks"]["all"],
        "size_kib": of("size_avg") / 1024,
        "sequential_share": of("seq_count") / requests,
        "misaligned_share": info["misaligned"]["all"] / requests,
        "scan_kib": of("scan_avg") / 1024,
    }


def _curve(document: Mapping[str, Any]) -> Curve:
    def hits(point: Mapping[str, Any], name: str) -> float:
        missed = point.get(name)
        return 0.0 if missed is None else 1 - missed

    points = [
        (
            point["size_blocks"] * document["block_size"],
            hits(point, "miss_ratio"),
            hits(point, "read_miss_ratio"),
            hits(point, "write_miss_ratio"),
        )
        for point in document["points"]
    ]
    return points or [(0, 0.0, 0.0, 0.0)]
