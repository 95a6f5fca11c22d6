"""Advice for a trace, from decision trees that were trained on simulated studies.

A tree sees only shares and ratios of a workload's features, and the workload's miss ratios at the sizes in
question. A small trace and a large one that behave alike therefore look alike to it. Each question has a tree
with few levels, so the path to an answer can be shown as rules. Three figures say how often the trees are
right: on training workloads that a tree has not seen, on whole families of such workloads, and on workloads
that are excluded from training and from every choice. Each figure is compared with that of always giving the
most frequent answer. A trace counts as unlike the training set if its distance from the nearest training workload
is greater than that of 19 in 20 training workloads from their own nearest neighbours.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from forebay._run import ForebayError, reason
from forebay.lab.meanings import meaning
from forebay.lab.rows import package_version
from forebay.lab.seen import (
    ADMISSIONS,
    BLOCKS,
    HIT_GAIN_MIN,
    LATENCY_GAIN_MIN,
    LAYOUT,
    POLICIES,
    QUEUE_DEPTH,
    SLOWER_MAX,
    Outcome,
    Seen,
    Sizes,
    admission_worth,
    look,
)
from forebay.lab.traces import Trace
from forebay.lab.values import number, share
from forebay.lab.workloads import held_out, workloads

#: The model that comes with the package.
SHIPPED = Path(__file__).with_name("advice.json")
#: The version of the model format. It changes when the features of the trees change.
VERSION = 5
#: An answer counts as near the best one if it is worse by at most this.
NEAR = 0.01
DEPTH_MAX, LEAF_MIN = 3, 6
#: The smallest spread of a feature, in logarithms, by which distances are scaled.
SPREAD_MIN = 0.05
#: Sizes of the tiers in training, as shares of a trace's distinct data.
DRAM, FLASH = ("3%", "8%", "20%", "40%"), ("15%", "40%", "90%")
#: Memory sizes for which the training covers admission to flash.
ADMISSION_DRAM = ("3%", "20%")


def _or(*names: str) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


#: The trees for the policy and the block size are trained on caches without flash, whatever the
#: size of flash.
QUESTIONS = {
    "tier": "Does a second tier of this size lower the mean latency by at least 5 %?",
    "policy": f"With memory alone, which of {_or('lru', *POLICIES)} has the highest hit ratio, at least 0.01 above "
    "that of lru?",
    "block_size": f"With memory alone, which block size of {_or('4KiB', *BLOCKS)} lowers the mean latency most, and by "
    "at least 5 % compared with 4KiB?",
    "admission": "Which admission policy writes least to flash, of those within 2 % of the lowest mean latency?",
}
#: Questions that are asked only with a second tier.
OF_FLASH = ("tier", "admission")
#: The quantity of which the expected gain is a share; for the hit ratio, the gain is a difference.
GAINS = {
    "tier": "mean latency",
    "policy": "hit ratio",
    "block_size": "mean latency",
    "admission": "bytes written to flash",
}
#: The features that each tree can use.
FEATURES = {
    "tier": ("read_share", "accesses_per_block", "size_kib", "sequential_share",
             "misaligned_share", "dram_share", "flash_share",
             "scan_kib", "hit_all", "hit_dram", "hit_gain", "seeks_saved", "seeks_saved_of_reads",
             "small_gain"),
    "policy": ("read_share", "dram_share", "hit_dram",
               *(f"lead_{policy}" for policy in POLICIES)),
    "block_size": ("read_share", "size_kib", "sequential_share", "misaligned_share",
                   "scan_kib", "dram_share", "hit_dram",
                   *(f"lead_{block}" for block in BLOCKS),
                   *(f"lead_of_reads_{block}" for block in BLOCKS),
                   *(f"small_lead_{block}" for block in BLOCKS)),
    "admission": tuple(f"small_lead_{policy}" for policy in ADMISSIONS),
}  # fmt: skip
#: The features that determine how similar a workload is to the training workloads.
LIKENESS = ("read_share", "accesses_per_block", "size_kib", "sequential_share", "misaligned_share", "hit_all")  # fmt: skip


def _trained_sizes(footprint_bytes: int) -> list[Sizes]:
    """The sizes of the tiers in training."""
    return [
        Sizes(
            (share(dram) or 0) * footprint_bytes,
            (share(flash) or 0) * footprint_bytes,
            dram in ADMISSION_DRAM,
        )
        for dram, flash in itertools.product(DRAM, FLASH)
    ]


def train(
    directory: str | Path,
    traces: Iterable[str | Path] = (),
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    quiet: bool = True,
) -> dict[str, Any]:
    """Simulates the training workloads and the given traces, and grows a tree for each question."""
    from forebay.lab.study import Binary

    apart = {text for _, text in held_out()}
    entries, families = training(traces)
    seen, examples = simulated(entries, directory, workers, scheduler, quiet)
    binary = Binary.found()
    trained = [name for name in seen if name not in apart]
    model: dict[str, Any] = {
        "version": VERSION,
        "made_by": {"forebay": binary.version, "python": package_version()},
        "workloads": len(trained),
        "held_out": len(seen) - len(trained),
        "families": dict(Counter(families[name] for name in trained)),
        "questions": {
            question: _grow(
                question,
                [row for row in rows if row["workload"] not in apart],
                families,
                [row for row in rows if row["workload"] in apart],
            )
            for question, rows in examples.items()
        },
        "likeness": _likeness(seen[name] for name in trained),
    }
    return model


def training(
    traces: Iterable[str | Path],
) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The traces of the training study, including those that validate the trees, and the family of
    each trace.
    """
    made = [*workloads(), *held_out()]
    entries = [{"spec": text, "name": text} for _, text in made]
    families = {text: family for family, text in made}
    for trace in traces:
        path = str(Path(trace).resolve())
        entries.append({"path": path, "name": path})
        families[path] = Path(path).name
    return entries, families


def simulated(
    entries: Sequence[Mapping[str, str]],
    directory: str | Path,
    workers: int | None = None,
    scheduler: str | None = None,
    quiet: bool = True,
) -> tuple[dict[str, Seen], dict[str, list[dict[str, Any]]]]:
    """The known features of each trace, and for each question rows of features and simulated
    answers.
    """
    from forebay.lab import spec
    from forebay.lab.study import Study

    directory = Path(directory)
    study = Study(spec.parse(_study_text(entries), Path()), directory, quiet)
    table = study.run(workers, scheduler).rows
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        known = pool.map(
            lambda trace: _looked(trace, study.binary.hash, directory / "looks"),
            study.traces,
        )
        seen = {trace.name: one for trace, one in zip(study.traces, known, strict=True)}
    return seen, _examples(table, seen)


def _looked(trace: Trace, binary_hash: str, directory: Path) -> Seen:
    """The known features of a workload, determined once for each version of the command and of the
    model format.
    """
    directory.mkdir(exist_ok=True)
    named = f"{trace.hash} {binary_hash} {VERSION}"
    path = directory / f"{hashlib.sha256(named.encode()).hexdigest()[:32]}.json"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(look(trace.path, _trained_sizes).document()))
        partial.replace(path)
    return Seen.of_document(json.loads(path.read_text()))


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
        asked = FLASH if dram in ADMISSION_DRAM else ()
        for flash, admission in itertools.product(asked, ADMISSIONS):
            name = f"admission {dram} {flash} {admission}"
            setups.append(
                {"name": name, "flash.size": flash, "admission.policy": admission}
            )
        for setup in setups:
            setup.setdefault("cache.dram", dram)
            setup.setdefault("flash.size", "unset")
    return (
        f'title = "Training of forebay advise"\ntraces = {toml(entries)}\n'
        f'[base]\n"flash.layout" = "{LAYOUT}"\n"options.queue_depth" = {QUEUE_DEPTH}\n'
        f"[sweep]\nsetup = {toml(setups)}\n"
    )


def _examples(
    table: pl.DataFrame, seen: Mapping[str, Seen]
) -> dict[str, list[dict[str, Any]]]:
    """For each question, rows of `workload`, `features`, `answer`, `gain` and `gains`."""
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
                made["tier"].append(
                    _best(name, features, {"yes": gain}, LATENCY_GAIN_MIN, "no")
                )
                tried = {
                    policy: _outcome(found)
                    for policy in ADMISSIONS
                    if (
                        found := results.get(
                            (name, f"admission {dram} {flash} {policy}")
                        )
                    )
                }
                if len(tried) == len(ADMISSIONS):
                    tried = {"always": _outcome(one), **tried}
                    made["admission"].append(_admission(name, features, tried))
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


def _outcome(row: Mapping[str, Any]) -> Outcome:
    return Outcome(row["latency_us.all.mean"], row["tier2_bytes_written"])


def _admission(
    name: str, features: dict[str, float], tried: Mapping[str, Outcome]
) -> dict[str, Any]:
    """The same as `_best`, for admission. An answer that exceeds the latency tolerance by at most
    0.01 counts as near.
    """
    worth = admission_worth(tried)
    answer = max(worth, key=lambda policy: worth[policy])
    most = tried["always"].flash_bytes
    return {
        "workload": name,
        "features": features,
        "answer": answer,
        "gain": 1 - tried[answer].flash_bytes / most if most else 0.0,
        "gains": {
            **admission_worth(tried, SLOWER_MAX + NEAR),
            answer: worth[answer],
        },
    }


def _best(
    name: str,
    features: dict[str, float],
    gains: Mapping[str, float],
    least: float,
    otherwise: str,
) -> dict[str, Any]:
    """The right answer: the one with the largest gain, or `otherwise` if no gain reaches
    `least`.
    """
    # Not to change anything is worth the smallest gain that counts.
    worth = {**gains, otherwise: least}
    best = max(gains, key=lambda one: gains[one], default=otherwise)
    answer = best if worth[best] >= least else otherwise
    return {
        "workload": name,
        "features": features,
        "answer": answer,
        "gain": gains.get(answer, 0.0),
        "gains": worth,
    }


def _grow(
    question: str,
    rows: list[dict[str, Any]],
    families: Mapping[str, str],
    apart: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """A tree, and how often it is right about workloads and families that it has not seen."""
    names = FEATURES[question]
    answers = np.array([row["answer"] for row in rows])
    gains = np.array([row["gain"] for row in rows])
    said = unseen(question, rows, families)
    tree = _tree()
    tree.fit(_points(rows, names), answers)
    most = Counter(answers.tolist()).most_common(1)[0]
    grown = {
        "features": list(names),
        "answers": [str(name) for name in tree.classes_],
        "rows": len(rows),
        "baseline": {"answer": str(most[0]), "accuracy": round(most[1] / len(rows), 4)},
        "cross_validated": {how: checked(rows, one) for how, one in said.items()},
        "families": _by_family(rows, said["by_family"], families),
        "tree": _exported(tree, names, _points(rows, names), gains),
    }
    if apart:
        usual = [row["answer"] == most[0] for row in apart]
        grown["held_out"] = {
            "rows": len(apart),
            **checked(apart, tree.predict(_points(apart, names))),
            "baseline": round(sum(usual) / len(usual), 4),
        }
    return grown


def unseen(
    question: str, rows: Sequence[dict[str, Any]], families: Mapping[str, str]
) -> dict[str, list[str]]:
    """The answers of trees for rows whose workloads, or whose families, they have not seen."""
    from sklearn.model_selection import GroupKFold, LeaveOneGroupOut, cross_val_predict

    points = _points(rows, FEATURES[question])
    answers = np.array([row["answer"] for row in rows])
    groups = {
        "by_workload": (GroupKFold(10), [row["workload"] for row in rows]),
        "by_family": (LeaveOneGroupOut(), [families[row["workload"]] for row in rows]),
    }
    said = {
        how: cross_val_predict(_tree(), points, answers, groups=group, cv=folds)
        for how, (folds, group) in groups.items()
    }
    return {how: [str(one) for one in answers] for how, answers in said.items()}


def _tree() -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(
        criterion="entropy",
        max_depth=DEPTH_MAX,
        min_samples_leaf=LEAF_MIN,
        random_state=1,
    )


def _points(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> Any:
    return np.array([[row["features"][name] for name in names] for row in rows])


def checked(rows: Sequence[dict[str, Any]], said: Sequence[str]) -> dict[str, float]:
    """How often answers are right. `near` counts answers that are right, or worse than the right
    one by at most 0.01.
    """
    from sklearn.metrics import precision_recall_fscore_support

    answers = np.array([row["answer"] for row in rows])
    precision, recall, _, _ = precision_recall_fscore_support(
        answers, said, average="weighted", zero_division=0
    )
    near = [
        row["gains"].get(one, -math.inf) >= row["gains"][row["answer"]] - NEAR
        for row, one in zip(rows, said, strict=True)
    ]
    return {
        "accuracy": round(float((np.array(said) == answers).mean()), 4),
        "precision": round(float(precision), 4),
        "recall": round(float(recall), 4),
        "near": round(sum(near) / len(near), 4),
    }


def _by_family(
    rows: Sequence[dict[str, Any]], said: Sequence[str], families: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """The figures of `checked` for the rows of each family."""
    pairs: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for row, one in zip(rows, said, strict=True):
        pairs.setdefault(families[row["workload"]], []).append((row, str(one)))
    return {
        family: {"rows": len(own), **checked(*map(list, zip(*own, strict=True)))}
        for family, own in pairs.items()
    }


def _exported(
    tree: Any, names: Sequence[str], points: Any, gains: Any
) -> dict[str, Any]:
    """The tree as nested tables, with the mean gain of each leaf's rows."""
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
    # A feature that hardly varies in training must not make every other trace unlike it.
    mean, spread = points.mean(axis=0), np.maximum(points.std(axis=0), SPREAD_MIN)
    scaled = (points - mean) / spread
    apart = np.sqrt(((scaled[:, None] - scaled[None]) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    return {
        "features": list(LIKENESS),
        "mean": mean.round(5).tolist(),
        "spread": spread.round(5).tolist(),
        "points": scaled.round(3).tolist(),
        # 19 in 20 training workloads are nearer than this to their nearest neighbour.
        "distance_max": round(float(np.quantile(apart.min(axis=1), 0.95)), 4),
    }


def _position(seen: Seen) -> list[float]:
    features = seen.features(0, 0)
    return [math.log1p(abs(features[name])) for name in LIKENESS]


def load(path: str | Path | None = None) -> dict[str, Any]:
    """Loads a model: the model in the package, unless a file is given."""
    path = Path(path) if path is not None else SHIPPED
    try:
        model = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ForebayError(
            f"cannot read the model {path}: {reason(error)}", 1
        ) from error
    if model.get("version") != VERSION:
        raise ForebayError(
            f"{path} was not trained by this version; train a new model", 1
        )
    return model


def advise(
    trace: str | Path,
    *,
    dram: str = "10%",
    flash: str = "50%",
    model: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Returns the advice of the trees for a trace.

    Args:
        trace: The trace.
        dram: Size of memory: a size, or a share of the trace's distinct data.
        flash: Size of the second tier, in the same form.
        model: A model that `forebay advise --train` wrote; by default, the model in the package.
        options: Options of `forebay trace info`, such as `limit`.

    Returns:
        The document of `--json`.
    """
    known = load(model)
    sizes: list[Sizes] = []

    def asked(footprint_bytes: int) -> list[Sizes]:
        one = _bytes(dram, footprint_bytes, "dram")
        if not one:
            raise ForebayError(f"--dram {dram}: a cache needs memory", 2)
        sizes.append(Sizes(one, _bytes(flash, footprint_bytes, "flash")))
        return sizes

    seen = look(trace, asked, options)
    ((dram_bytes, flash_bytes, _),) = sizes
    features = seen.features(dram_bytes, flash_bytes)
    apart = _distance(seen, known["likeness"])
    unlike = apart > known["likeness"]["distance_max"]
    advice = []
    for question, text in QUESTIONS.items():
        if question in OF_FLASH and not flash_bytes:
            continue
        tree = known["questions"][question]
        answer, sure, rule, gain = walk(tree, features)
        measured = (tree["cross_validated"]["by_workload"], tree.get("held_out"))
        right = min(one["accuracy"] for one in measured if one)
        advice.append(
            {
                "question": text,
                "answer": answer,
                # The confidence is at most the accuracy on workloads that the tree had not seen.
                "confidence": round(min(sure, right) * (0.5 if unlike else 1), 3),
                "expected_gain": gain,
                "gain_of": GAINS[question],
                "rule": rule,
                "cross_validated": tree["cross_validated"],
                "held_out": tree.get("held_out"),
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


def _bytes(text: str, footprint_bytes: int, what: str) -> float:
    fraction = share(text)
    if fraction is not None:
        return fraction * footprint_bytes
    size = number(text)
    if size is None or size < 0:
        message = (
            f"--{what} {text}: write a size, such as 64MiB, or a share, such as 10%"
        )
        raise ForebayError(message, 2)
    return size


def walk(
    question: Mapping[str, Any], features: Mapping[str, float]
) -> tuple[str, float, list[str], float]:
    """The answer, its confidence, the rules that led to it, and the expected gain."""
    node, rule = question["tree"], []
    while "feature" in node:
        name, threshold = node["feature"], node["threshold"]
        below = features[name] <= threshold
        sign = "<=" if below else ">"
        rule.append(f"{name} = {features[name]:.4g} {sign} {threshold:.4g}")
        node = node["below" if below else "above"]
    counts = node["counts"]
    answer = max(counts, key=lambda name: counts[name])
    # Add one row for each answer, because a leaf with four rows is not certain.
    sure = (counts[answer] + 1) / (sum(counts.values()) + len(counts))
    return answer, sure, rule, node["gain"]


def _distance(seen: Seen, likeness: Mapping[str, Any]) -> float:
    position = (np.array(_position(seen)) - likeness["mean"]) / likeness["spread"]
    return float(
        np.sqrt(((np.array(likeness["points"]) - position) ** 2).sum(axis=1)).min()
    )


def text(document: Mapping[str, Any]) -> str:
    """The document as readable text."""

    def mib(key: str) -> str:
        return f"{document[key] / 2**20:.1f} MiB"

    tier = "no second tier"
    if document["flash_bytes"]:
        tier = f"for the questions about flash, a second tier of {mib('flash_bytes')}"
    lines = [
        f"{document['trace']}: {mib('footprint_bytes')} of distinct data; memory of {mib('dram_bytes')}; {tier}"
    ]
    for one in document["advice"]:
        lines.append(
            f"\n{one['question']}\n  {one['answer']}, confidence {one['confidence']:.0%}"
        )
        if one["expected_gain"]:
            # The gain in the hit ratio is a difference, the others are shares.
            of = "in" if one["gain_of"] == GAINS["policy"] else "of"
            lines.append(
                f"  mean gain of the training workloads that match: {one['expected_gain']:.3g} {of} {one['gain_of']}"
            )
        lines += [f"  because {rule}" for rule in one["rule"]]
    named = [rule.split(" = ")[0] for one in document["advice"] for rule in one["rule"]]
    if named:
        lines.append("")
    lines += [f"{name}: {meaning(name)}" for name in dict.fromkeys(named)]
    if document["unlike_training"]:
        lines.append(
            "\nThis trace is unlike every training workload "
            f"(its distance from the nearest is {document['distance']}; the limit is {document['distance_max']}): "
            "simulate before you rely on this advice."
        )
    return "\n".join(lines)


def page(document: Mapping[str, Any], model: Mapping[str, Any], path: Path) -> None:
    """Writes a page with the tree of each question, with the path of the trace marked."""
    from forebay.lab import report, trees
    from forebay.lab.pictures import Picture

    said = {one["question"]: one for one in document["advice"]}
    pictures = [
        Picture(
            f"{asked} {said[asked]['answer']}, confidence {said[asked]['confidence']:.0%}",
            trees.figure(model["questions"][question]["tree"], document["features"]),
            "A branch goes left if the feature is at most the threshold. Each leaf shows its most frequent answer in the "
            "training set, and how often that was right. The path of this trace is marked.",
        )
        for question, asked in QUESTIONS.items()
        if asked in said
    ]
    title = f"Advice for {document['trace']}"
    report.page(path, title, text(document).splitlines()[0], [], pictures, "")
