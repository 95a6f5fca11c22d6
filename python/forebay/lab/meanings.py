"""What the features of advice mean, in words."""

from __future__ import annotations

from forebay.lab.seen import ADMISSIONS, POLICIES

#: The meanings of the features that are not leads; see :func:`meaning`.
MEANINGS = {
    "read_share": "share of reads in the requests",
    "accesses_per_block": "mean number of accesses to a block",
    "size_kib": "mean size of a request, in KiB",
    "sequential_share": "share of sequential requests",
    "misaligned_share": "share of requests that are not aligned to 4 KiB",
    "scan_kib": "mean length of a sequential run, in KiB",
    "dram_share": "memory as a share of the distinct data",
    "flash_share": "the second tier as a share of the distinct data",
    "hit_all": "hit ratio of a cache that holds all data",
    "hit_dram": "hit ratio of memory alone",
    "hit_gain": "hit ratio of both tiers minus that of memory alone",
    "seeks_saved": "share of the backing store's work that the second tier saves, if a sequential read costs a tenth "
    "of a read with a seek",
    "seeks_saved_of_reads": "as seeks_saved, if writes invalidate blocks",
    "small_gain": "share of the mean latency that the second tier saves, in a simulation of a small cache with a sample",
}


def meaning(feature: str) -> str:
    """The meaning of a feature, in words.

    >>> meaning("lead_arc")
    'lead of arc over lru and all other policies in hit ratio, on a sample; at most -0.01 if lru leads'
    """
    found = MEANINGS.get(feature)
    if found:
        return found
    lead, _, name = feature.rpartition("_")
    small = "in a simulation of a small cache with a sample"
    if name in ADMISSIONS:
        saved = f"saved flash writes (as a share of those under always), {small}"
        return f"lead of {name} over all other admission policies in {saved}; -0.1 or less if it is too slow"
    if name in POLICIES:
        return f"lead of {name} over lru and all other policies in hit ratio, on a sample; at most -0.01 if lru leads"
    saved = f"saved mean latency, {small}"
    if lead != "small_lead":
        reads = ", if writes invalidate blocks" if lead == "lead_of_reads" else ""
        saved = f"saved requests to the backing store{reads}, according to the miss-ratio curves"
    return f"lead of {name} blocks over all other block sizes in {saved} (as a share)"
