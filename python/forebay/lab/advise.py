"""Advice for a trace, by decision trees that were trained on simulated studies.

What a tree sees of a workload are shares and ratios of its features and its miss ratios at the sizes in
question, so that a small trace and a large one with the same habits look alike. Each question has a tree of
few levels, which is shown as the rules that led to an answer. How often the trees are right is counted on
workloads that they were not trained on, and, harder, on whole families of workloads; beside it stands what
always giving the most frequent answer would get. A trace that is farther from all workloads of the training
than 19 in 20 of these are from their nearest is said to be unlike them.
"""

from __future__ import annotations

import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from forebay._run import ForebayError, run
from forebay.lab.rows import package_version
from forebay.lab.values import number, share

#: The model that comes with the package.
SHIPPED = Path(__file__).with_name("advice.json")
#: A gain below this is none: of mean latency, and of the hit ratio.
LATENCY_GAIN_MIN, HIT_GAIN_MIN = 0.05, 0.01
DEPTH_MAX, LEAF_MIN = 5, 6
#: The least spread of a feature, in logarithms, by which distances are scaled.
SPREAD_MIN = 0.05
#: Sizes of the training, as shares of a trace's distinct data.
DRAM, FLASH = ("3%", "8%", "20%", "40%"), ("15%", "40%", "90%")
POLICIES, BLOCKS = ("arc", "s3-fifo", "lfu"), ("16KiB", "64KiB")

QUESTIONS = {
    "tier": "Does a second tier of this size lower the mean latency by at least 5 %?",
    "policy": "Which replacement policy hits at least 0.01 more than LRU, and most?",
    "block_size": "Which block size lowers the mean latency by at least 5 % against 4KiB, and most?",
}
#: What a tree may look at.
FEATURES = {
    "tier": ("read_share", "accesses_per_block", "size_kib", "sequential_share",
             "misaligned_share", "gap_ms", "dram_share", "flash_share",
             "hit_dram", "hit_gain", "backing_saved"),
    "policy": ("read_share", "accesses_per_block", "sequential_share", "gap_ms",
               "popular_share", "dram_share", "hit_dram", "hit_half", "hit_all",
               *(f"gain_{policy}" for policy in POLICIES)),
    "block_size": ("read_share", "size_kib", "sequential_share", "misaligned_share",
                   "scan_kib", "gap_ms", "dram_share", "hit_dram",
                   *(f"misses_saved_{block}" for block in BLOCKS)),
}  # fmt: skip
#: What a workload is compared by, to see whether it is like those of the training.
LIKENESS = ("read_share", "accesses_per_block", "size_kib", "sequential_share", "misaligned_share", "hit_all")  # fmt: skip


def workloads() -> list[tuple[str, str]]:
    """Families and synthetic workloads of the training: what is popular, and how much is written."""
    made = []
    mixes = itertools.product((0, 0.3, 0.8), ("4KiB", "16KiB", "4KiB@0.7/64KiB@0.3"))
    for seed, (write, size) in enumerate(mixes):
        common = f"write={write},size={size}"
        end = f",requests=30k,seed={seed + 1}"
        for theta in (0.7, 1.1):
            made.append(
                ("zipf", f"zipf:blocks={20 + 5 * seed}k,theta={theta},{common}{end}")
            )
        zones = ("0.1@0.85/0.9@0.15", "0.3@0.7/0.7@0.3")[seed % 2]
        made += [
            ("uniform", f"uniform:blocks={12 + 4 * seed}k,{common}{end}"),
            ("zoned", f"zoned:blocks={20 + 3 * seed}k,zones={zones},{common}{end}"),
            ("zoned", f"zoned:blocks=24k,zones={zones},scatter=no,{common}{end}"),
            ("loop", f"sequential:blocks={10 + 3 * seed}k,{common}{end}"),
            ("runs", f"sequential:blocks=60k,run={16 << seed % 5},{common}{end}"),
            (
                "flood",
                f"zipf:weight=6,blocks={12 + seed}k,{common} + "
                f"sequential:weight=4,start=1GiB,blocks=60k,{common}{end}",
            ),
            (
                "phases",
                f"zipf:blocks=15k,theta=0.9,{common},requests=15k then "
                f"zipf:blocks=15k,theta=0.9,start=256MiB,{common},requests=15k,seed={seed + 1}",
            ),
        ]
    return made


#: Sizes in bytes and the hit ratios there: of all accesses, of reads, of writes.
Curve = list[tuple[int, float, float, float]]


@dataclass(frozen=True)
class Seen:
    """What is known of a workload before the cache is simulated."""

    name: str
    footprint_bytes: int
    base: dict[str, float]
    curve: Curve
    #: Curves in larger blocks, with how many accesses these are.
    blocks: dict[str, tuple[int, Curve]]
    accesses: int
    #: Curves of replacement policies on a sample.
    policies: dict[str, Curve]

    def features(self, dram_bytes: float, flash_bytes: float) -> dict[str, float]:
        one, both = (
            _at(self.curve, dram_bytes),
            _at(self.curve, dram_bytes + flash_bytes),
        )
        reads = self.base["read_accesses_share"]
        # What reaches the backing store: reads that miss, and all writes.
        asked, left = (reads * (1 - hit[1]) + 1 - reads for hit in (one, both))
        misses = max(self.accesses * (1 - one[0]), 1)
        sampled = {
            name: _at(curve, dram_bytes)[0] for name, curve in self.policies.items()
        }
        return {
            **self.base,
            "dram_share": dram_bytes / self.footprint_bytes,
            "flash_share": flash_bytes / self.footprint_bytes,
            "hit_dram": one[0],
            "hit_gain": both[0] - one[0],
            "backing_saved": 1 - left / max(asked, 1e-9),
            "hit_half": _at(self.curve, self.footprint_bytes / 2)[0],
            "hit_all": self.curve[-1][1],
            **{f"gain_{p}": sampled[p] - sampled["lru"] for p in POLICIES},
            **{
                f"misses_saved_{block}": 1
                - accesses * (1 - _at(curve, dram_bytes)[0]) / misses
                for block, (accesses, curve) in self.blocks.items()
            },
        }


def _at(curve: Curve, size_bytes: float) -> tuple[float, float, float]:
    found = (0.0, 0.0, 0.0)
    for size, *hits in curve:
        if size > size_bytes:
            break
        found = (hits[0], hits[1], hits[2])
    return found


def look(trace: str | Path, words: Mapping[str, Any] | None = None) -> Seen:
    """Reads a trace five times: its features, curves in blocks of three sizes, curves of policies."""
    options = {"rows": False, **(words or {})}
    info = run("trace info", trace, **options).document
    curve = run("mrc", trace, points=400, **options).document
    larger = {
        block: run("mrc", trace, points=400, block_size=block, **options).document
        for block in BLOCKS
    }
    # In miniature where there is enough of it.
    sample = min(1.0, 20_000 / max(1, info["footprint_blocks"]["all"]))
    policies = run(
        "mrc",
        trace,
        policy=",".join(["lru", *POLICIES]),
        sample=None if sample == 1 else sample,
        points=40,
        **options,
    ).document
    features = info["features"]
    requests = max(1, info["requests"])
    accesses = info["block_accesses"]["all"]
    footprint = info["footprint_blocks"]["all"]
    if not accesses:
        raise ForebayError(f"{trace}: no request reads or writes anything", 1)

    def of(name: str, default: float = 0.0) -> float:
        value = features.get(name)
        return default if value is None or not math.isfinite(value) else float(value)

    most, mean = of("page_popularity_p99", 1), of("page_popularity_avg", 1)
    base = {
        "read_share": info["reads"] / requests,
        "read_accesses_share": info["block_accesses"]["read"] / accesses,
        "accesses_per_block": accesses / footprint,
        "size_kib": of("size_avg") / 1024,
        "sequential_share": of("seq_count") / requests,
        "misaligned_share": info["misaligned"]["all"] / requests,
        "scan_kib": of("scan_avg") / 1024,
        "gap_ms": of("iat_avg") / 1000,
        "popular_share": most / max(mean, 1e-9),
    }
    return Seen(
        name=str(trace),
        footprint_bytes=footprint * 4096,
        base=base,
        curve=_curve(curve, curve["block_size"]),
        blocks={
            block: (one["accesses"], _curve(one, one["block_size"]))
            for block, one in larger.items()
        },
        accesses=accesses,
        policies={
            one["policy"]: _curve(one, policies["block_size"])
            for one in policies["policies"]
        },
    )


def _curve(document: Mapping[str, Any], block_size: int) -> Curve:
    def hits(point: Mapping[str, Any], name: str) -> float:
        missed = point.get(name)
        return 0.0 if missed is None else 1 - missed

    points = [
        (
            point["size_blocks"] * block_size,
            hits(point, "miss_ratio"),
            hits(point, "read_miss_ratio"),
            hits(point, "write_miss_ratio"),
        )
        for point in document["points"]
    ]
    return points or [(0, 0.0, 0.0, 0.0)]


def train(
    directory: str | Path,
    traces: Iterable[str | Path] = (),
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Simulates the workloads of the training and the given traces, and grows a tree for each question."""
    from forebay.lab import spec
    from forebay.lab.study import Study

    directory = Path(directory)
    entries = [{"spec": text, "name": text} for _, text in workloads()]
    families = {text: family for family, text in workloads()}
    for trace in traces:
        path = str(Path(trace).resolve())
        entries.append({"path": path, "name": path})
        families[path] = Path(path).name
    study = Study(spec.parse(_study_text(entries), Path()), directory, quiet)
    table = study.run(workers, scheduler).rows
    paths = {trace.name: trace.path for trace in study.traces}
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        seen = dict(zip(paths, pool.map(look, paths.values()), strict=True))
    examples = _examples(table, seen)
    model: dict[str, Any] = {
        "version": 1,
        "made_by": {"forebay": study.binary.version, "python": package_version()},
        "workloads": len(paths),
        "families": dict(Counter(families[name] for name in paths)),
        "questions": {
            question: _grow(question, rows, families)
            for question, rows in examples.items()
        },
        "likeness": _likeness(seen.values()),
    }
    return model


def _study_text(entries: Sequence[Mapping[str, str]]) -> str:
    from forebay.lab.values import toml

    setups = []
    for dram in DRAM:
        for flash in ("unset", *FLASH):
            setups.append({"name": f"tier {dram} {flash}", "flash.size": flash})
        for policy in POLICIES:
            setups.append(
                {"name": f"policy {dram} {policy}", "replacement.policy": policy}
            )
        for block in BLOCKS:
            setups.append({"name": f"block {dram} {block}", "cache.block_size": block})
        for setup in setups[-(1 + len(FLASH) + len(POLICIES) + len(BLOCKS)) :]:
            setup["cache.dram"] = dram
            setup.setdefault("flash.size", "unset")
    return (
        f'title = "Training of forebay advise"\ntraces = {toml(entries)}\n'
        f'[base]\n"options.queue_depth" = 8\n[sweep]\nsetup = {toml(setups)}\n'
    )


def _examples(
    table: pl.DataFrame, seen: Mapping[str, Seen]
) -> dict[str, list[dict[str, Any]]]:
    """For each question rows of `workload`, `features`, `answer` and `gain`."""
    made: dict[str, list[dict[str, Any]]] = {question: [] for question in QUESTIONS}
    results = {
        (row["trace"], row["setup"]): row
        for row in table.filter(pl.col("status") == "ok").to_dicts()
    }
    for name, workload in seen.items():
        for dram in DRAM:
            base = results.get((name, f"tier {dram} unset"))
            if base is None:
                continue
            dram_bytes = (share(dram) or 0) * workload.footprint_bytes
            latency = base["latency_us.all.mean"]
            for flash in FLASH:
                one = results.get((name, f"tier {dram} {flash}"))
                if one is None:
                    continue
                gain = 1 - one["latency_us.all.mean"] / latency
                flash_bytes = (share(flash) or 0) * workload.footprint_bytes
                features = workload.features(dram_bytes, flash_bytes)
                answer = "yes" if gain >= LATENCY_GAIN_MIN else "no"
                made["tier"].append(_example(name, features, answer, gain))
            features = workload.features(dram_bytes, 0)
            gains = {
                policy: one["hit_ratio"] - base["hit_ratio"]
                for policy in POLICIES
                if (one := results.get((name, f"policy {dram} {policy}")))
            }
            made["policy"].append(_best(name, features, gains, HIT_GAIN_MIN, "lru"))
            gains = {
                block: 1 - one["latency_us.all.mean"] / latency
                for block in BLOCKS
                if (one := results.get((name, f"block {dram} {block}")))
            }
            made["block_size"].append(
                _best(name, features, gains, LATENCY_GAIN_MIN, "4KiB")
            )
    return made


def _example(
    name: str, features: dict[str, float], answer: str, gain: float
) -> dict[str, Any]:
    return {"workload": name, "features": features, "answer": answer, "gain": gain}


def _best(
    name: str,
    features: dict[str, float],
    gains: Mapping[str, float],
    least: float,
    otherwise: str,
) -> dict[str, Any]:
    best = max(gains, key=lambda one: gains[one], default=otherwise)
    gain = gains.get(best, 0.0)
    if gain < least:
        best, gain = otherwise, 0.0
    return _example(name, features, best, gain)


def _grow(
    question: str, rows: list[dict[str, Any]], families: Mapping[str, str]
) -> dict[str, Any]:
    """A tree, and how often it is right about workloads and families that it has not seen."""
    from sklearn.metrics import precision_recall_fscore_support
    from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    names = FEATURES[question]
    points = np.array([[row["features"][name] for name in names] for row in rows])
    answers = np.array([row["answer"] for row in rows])
    gains = np.array([row["gain"] for row in rows])
    tree = DecisionTreeClassifier(
        max_depth=DEPTH_MAX, min_samples_leaf=LEAF_MIN, random_state=1
    )
    groups = {
        "by_workload": (GroupKFold(10), [row["workload"] for row in rows]),
        "by_family": (LeaveOneGroupOut(), [families[row["workload"]] for row in rows]),
    }
    checked = {}
    for how, (folds, group) in groups.items():
        said = cross_val_predict(tree, points, answers, groups=group, cv=folds)
        precision, recall, _, _ = precision_recall_fscore_support(
            answers, said, average="weighted", zero_division=0
        )
        checked[how] = {
            "accuracy": round(float((said == answers).mean()), 4),
            "precision": round(float(precision), 4),
            "recall": round(float(recall), 4),
        }
    tree.fit(points, answers)
    most = Counter(answers.tolist()).most_common(1)[0]
    return {
        "features": list(names),
        "answers": [str(name) for name in tree.classes_],
        "rows": len(rows),
        "baseline": {"answer": str(most[0]), "accuracy": round(most[1] / len(rows), 4)},
        "cross_validated": checked,
        "tree": _exported(tree, names, points, gains),
    }


def _exported(
    tree: Any, names: Sequence[str], points: Any, gains: Any
) -> dict[str, Any]:
    """The tree as nested tables, with the mean gain of the rows of each leaf."""
    inner = tree.tree_
    leaves = tree.apply(points)

    def node(number: int) -> dict[str, Any]:
        if inner.children_left[number] < 0:
            counts = inner.value[number][0] * inner.n_node_samples[number]
            own = gains[leaves == number]
            return {
                "counts": {
                    str(name): int(round(float(count)))
                    for name, count in zip(tree.classes_, counts, strict=True)
                },
                "gain": round(float(own.mean()), 4) if len(own) else 0.0,
            }
        return {
            "feature": names[inner.feature[number]],
            "threshold": float(f"{inner.threshold[number]:.4g}"),
            "below": node(inner.children_left[number]),
            "above": node(inner.children_right[number]),
        }

    return node(0)


def _likeness(seen: Iterable[Seen]) -> dict[str, Any]:
    points = np.array([_position(one) for one in seen])
    # What hardly differs in the training must not make every other trace a stranger.
    mean, spread = points.mean(axis=0), np.maximum(points.std(axis=0), SPREAD_MIN)
    scaled = (points - mean) / spread
    apart = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    return {
        "features": list(LIKENESS),
        "mean": mean.round(5).tolist(),
        "spread": spread.round(5).tolist(),
        "points": scaled.round(3).tolist(),
        # Of the training, 19 workloads in 20 are nearer than this to the one nearest to them.
        "distance_max": round(float(np.quantile(apart.min(axis=1), 0.95)), 4),
    }


def _position(seen: Seen) -> list[float]:
    features = seen.features(0, 0)
    return [math.log1p(abs(features[name])) for name in LIKENESS]


def load(path: str | Path | None = None) -> dict[str, Any]:
    """A model: the one that comes with the package, unless a file is named."""
    path = Path(path) if path is not None else SHIPPED
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ForebayError(f"cannot read the model {path}: {error}", 1) from error
    if model.get("version") != 1:
        raise ForebayError(f"{path} is no model of this version; train it again", 1)
    return model


def advise(
    trace: str | Path,
    *,
    dram: str = "10%",
    flash: str = "50%",
    model: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What the trees say of a trace.

    Args:
        trace: The trace.
        dram: The memory in question: a size, or a share of the trace's distinct data.
        flash: The second tier in question.
        model: A model that was trained here; the one that comes with the package, if not given.
        options: Options of `forebay trace info`, such as `limit`.

    Returns:
        The document of `--json`.
    """
    known = load(model)
    seen = look(trace, options)
    dram_bytes = _bytes(dram, seen, "dram")
    flash_bytes = _bytes(flash, seen, "flash")
    features = seen.features(dram_bytes, flash_bytes)
    apart = _distance(seen, known["likeness"])
    unlike = apart > known["likeness"]["distance_max"]
    advice = []
    for question, text in QUESTIONS.items():
        tree = known["questions"][question]
        answer, sure, rule, gain = _walk(tree, features)
        right = tree["cross_validated"]["by_workload"]["accuracy"]
        advice.append(
            {
                "question": text,
                "answer": answer,
                # No surer than the tree has been right about workloads it had not seen.
                "confidence": round(min(sure, right) * (0.5 if unlike else 1), 3),
                "expected_gain": gain,
                "rule": rule,
                "cross_validated": tree["cross_validated"],
                "baseline": tree["baseline"],
            }
        )
    return {
        "trace": str(trace),
        "dram_bytes": int(dram_bytes),
        "flash_bytes": int(flash_bytes),
        "footprint_bytes": seen.footprint_bytes,
        "advice": advice,
        "unlike_training": bool(unlike),
        "distance": round(apart, 3),
        "distance_max": known["likeness"]["distance_max"],
        "features": {name: round(value, 5) for name, value in features.items()},
        "model": {"workloads": known["workloads"], **known["made_by"]},
    }


def _bytes(text: str, seen: Seen, what: str) -> float:
    fraction = share(text)
    if fraction is not None:
        return fraction * seen.footprint_bytes
    size = number(text)
    if size is None or size < 0:
        message = (
            f"--{what} {text}: write a size, such as 64MiB, or a share, such as 10%"
        )
        raise ForebayError(message, 2)
    return size


def _walk(
    question: Mapping[str, Any], features: Mapping[str, float]
) -> tuple[str, float, list[str], float]:
    """The answer, how sure it is, the rules on the way, and the gain to expect."""
    node, rule = question["tree"], []
    while "feature" in node:
        name, threshold = node["feature"], node["threshold"]
        below = features[name] <= threshold
        sign = "<=" if below else ">"
        rule.append(f"{name} = {features[name]:.4g} {sign} {threshold:.4g}")
        node = node["below" if below else "above"]
    counts = node["counts"]
    answer = max(counts, key=lambda name: counts[name])
    # One row more of each answer: a leaf of four rows is not certain.
    sure = (counts[answer] + 1) / (sum(counts.values()) + len(counts))
    return answer, sure, rule, node["gain"]


def _distance(seen: Seen, likeness: Mapping[str, Any]) -> float:
    position = (np.array(_position(seen)) - likeness["mean"]) / likeness["spread"]
    return float(
        np.sqrt(((np.array(likeness["points"]) - position) ** 2).sum(axis=1)).min()
    )


def text(document: Mapping[str, Any]) -> str:
    """The document in words."""
    lines = [
        f"{document['trace']}: memory of {document['dram_bytes'] / 2**20:.1f} MiB, "
        f"a second tier of {document['flash_bytes'] / 2**20:.1f} MiB, "
        f"{document['footprint_bytes'] / 2**20:.1f} MiB of distinct data"
    ]
    for one in document["advice"]:
        lines.append(
            f"\n{one['question']}\n  {one['answer']}, confidence {one['confidence']:.0%}"
        )
        if one["expected_gain"]:
            lines.append(f"  expected gain {one['expected_gain']:.3g}")
        lines += [f"  because {rule}" for rule in one["rule"]]
    if document["unlike_training"]:
        lines.append(
            "\nThis trace is unlike all workloads of the training "
            f"({document['distance']} from the nearest, where {document['distance_max']} is far): "
            "simulate before you believe it."
        )
    return "\n".join(lines)
