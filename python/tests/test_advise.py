"""Advice: what the shipped model says, how it was checked, and when it says that it does not know."""

import json

import forebay
import numpy as np
import pytest
from forebay.lab import advise
from forebay.lab.commands import advise as command


def test_advice_has_an_answer_with_its_rule_for_each_question(example, capsys):
    assert command([str(example), "--json", "--dram", "4MiB", "--flash", "64MiB"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert len(document["advice"]) == len(advise.QUESTIONS)
    for one in document["advice"]:
        assert one["question"].endswith("?") and one["answer"]
        assert 0 < one["confidence"] < 1
        assert all(" <= " in rule or " > " in rule for rule in one["rule"])
    assert document["flash_bytes"] == 64 << 20
    assert command([str(example)]) == 0
    said = capsys.readouterr().out
    assert "second tier" in said and "because" in said


def test_the_shipped_model_beats_always_giving_the_most_frequent_answer():
    model = advise.load()
    assert model["workloads"] >= 30
    for name, tree in model["questions"].items():
        checked = tree["cross_validated"]
        assert set(checked) == {"by_workload", "by_family"}
        assert checked["by_workload"]["accuracy"] > tree["baseline"]["accuracy"], name


def test_a_trace_unlike_all_others_is_said_to_be_so(tmp_path):
    trace = tmp_path / "odd.csv"
    # Misaligned writes of megabytes each, to one place.
    lines = [f"{n * 1000},w,{4096 * 300 + 512},{8 << 20}" for n in range(60)]
    trace.write_text("time_us,op,offset,length\n" + "\n".join(lines) + "\n")
    document = advise.advise(trace)
    assert (
        document["unlike_training"] and document["distance"] > document["distance_max"]
    )
    assert "unlike all workloads" in advise.text(document)
    assert all(one["confidence"] <= 0.5 for one in document["advice"])


def test_a_tree_is_grown_and_checked_by_workload():
    # The answer follows from one feature, but for every tenth workload.
    names = advise.FEATURES["tier"]
    chance = np.random.default_rng(1)
    rows = []
    for number in range(60):
        for _ in range(3):
            features = {name: float(chance.random()) for name in names}
            yes = (features["backing_saved"] > 0.5) != (number % 10 == 0)
            rows.append(
                {
                    "workload": f"w{number}",
                    "features": features,
                    "answer": "yes" if yes else "no",
                    "gain": 0.2 * yes,
                }
            )
    families = {f"w{number}": f"f{number % 6}" for number in range(60)}
    tree = advise._grow("tier", rows, families)
    assert 0.7 < tree["cross_validated"]["by_workload"]["accuracy"] < 0.95
    assert tree["tree"]["feature"] == "backing_saved"
    right = 0
    for _ in range(200):
        features = {name: float(chance.random()) for name in names}
        answer, sure, rule, gain = advise._walk(tree, features)
        assert 0.4 < sure < 1 and rule and (gain > 0.1) == (answer == "yes")
        right += answer == ("yes" if features["backing_saved"] > 0.5 else "no")
    assert right > 160


def test_what_makes_no_sense_is_refused(example, tmp_path, capsys):
    (tmp_path / "model.json").write_text("{}")
    for words in (
        [],
        [str(example), "--dram", "much"],
        [str(example), "--model", str(tmp_path / "model.json")],
        [str(tmp_path / "missing.csv")],
    ):
        assert command(words) in (1, 2)
        assert capsys.readouterr().err.startswith("forebay: ")
    with pytest.raises(forebay.ForebayError):
        advise.load(tmp_path / "none.json")
