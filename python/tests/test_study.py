"""Studies: the meaning of a file, the results of a cell, and that nothing is lost or counted
twice.
"""

import collections
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import forebay
import polars as pl
import pytest
from forebay._run import binary
from forebay.lab import cluster, running, spec
from forebay.lab.commands import study as command
from forebay.lab.study import Study, study

SWEEP = """
title = "Sizes & policies"
traces = ["*.parquet"]
repeats = {repeats}
[base]
"options.untimed" = true
[sweep]
"cache.dram" = {sizes}
"replacement.policy" = ["lru", "arc"]
"""


@pytest.fixture
def file(synthetic, tmp_path):
    """A study of two traces, two sizes and two policies: eight cells."""
    for kind in ("zipf", "uniform"):
        os.symlink(synthetic[kind, 1], tmp_path / f"{kind}.parquet")
    path = tmp_path / "study.toml"
    path.write_text(SWEEP.format(sizes='["1MiB", "4MiB"]', repeats=1))
    return path


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """The command, but each run takes a fifth of a second."""
    script = tmp_path / "slow-forebay"
    script.write_text(f'#!/bin/sh\nsleep 0.2\nexec {binary()} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(script))
    return script


def journal(directory):
    lines = (directory / "cells.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def once_each(directory, count):
    names = collections.Counter(line["cell"] for line in journal(directory))
    return len(names) == count and set(names.values()) == {1}


def test_a_study_has_a_row_for_each_cell_and_goes_on_where_it_was(
    file, tmp_path, scheduler
):
    out = tmp_path / "out"
    rows = study(file, out, workers=2)
    assert rows.height == 8 and rows["status"].unique().to_list() == ["ok"]
    assert {"trace", "target", "cache.dram", "replacement.policy"} <= set(rows.columns)
    assert {"status", "error", "hit_ratio", "hits.tier1.read"} <= set(rows.columns)
    assert {"cell.machine", "forebay.version", "forebay.hash"} <= set(rows.columns)
    assert pl.read_parquet(out / "rows.parquet").equals(rows)
    # A cell has the same result as the command alone.
    row = rows.filter(pl.col("trace").str.ends_with("zipf.parquet")).row(0, named=True)
    config = tmp_path / "c.toml"
    config.write_text(row["cell.config"])
    alone = forebay.run(
        "simulate", tmp_path / "zipf.parquet", config=config, untimed=True
    )
    assert alone.document["hit_ratio"] == row["hit_ratio"]
    page = (out / "report.html").read_text()
    assert "Sizes &amp; policies" in page and "rows of rows.parquet" in page
    # Cut off the end of the journal, as a crash does: only that cell runs again.
    whole = (out / "cells.jsonl").read_bytes()
    (out / "cells.jsonl").write_bytes(whole[:-20])
    outcome = Study(spec.read(file), out, quiet=True).run(scheduler=scheduler)
    assert (outcome.cells, outcome.known) == (8, 7)
    assert once_each(out, 8)
    # One more value adds its cells to the known ones.
    file.write_text(SWEEP.format(sizes='["1MiB", "2MiB", "4MiB"]', repeats=1))
    outcome = Study(spec.read(file), out, quiet=True).run(scheduler=scheduler)
    assert (outcome.cells, outcome.known) == (12, 8)


def test_a_failed_cell_is_a_row_and_repeats_report_their_spread(
    file, tmp_path, scheduler
):
    text = SWEEP.format(sizes='["1MiB", "1KiB"]', repeats=2)
    file.write_text(text.replace("untimed", "quiesce"))
    rows = study(file, tmp_path / "out", scheduler=scheduler)
    assert rows.height == 16
    failed = rows.filter(pl.col("status") == "failed")
    assert failed["cache.dram"].unique().to_list() == ["1KiB"] and failed.height == 8
    assert "cell.toml:1: cache.dram" in failed["error"][0]
    spread = pl.read_parquet(tmp_path / "out" / "repeats.parquet")
    assert spread["repeats"].unique().to_list() == [2]
    # The second repeat has other random numbers for its devices.
    assert (spread["latency_us.all.mean.std"] > 0).any()
    assert (spread["hit_ratio.std"] == 0).all()


@pytest.mark.parametrize(
    ("key", "says"),
    [("cache.drm", "there is no key `drm`"), ("options.untimd", "'--untimd' found")],
)
def test_a_study_whose_cells_fail_prints_the_errors_and_ends_with_their_status(
    key, says, file, tmp_path, scheduler, capsys
):
    text = file.read_text()
    file.write_text(text.replace("[base]", f'[base]\n"{key}" = true'))
    line = [str(file), "-o", str(tmp_path / "out"), "-q"]
    # Cells that failed before fail again.
    for _ in range(2):
        assert command([*line, "--scheduler", scheduler]) == 2
        said, errors = capsys.readouterr()
        assert "8 failed" in said and errors.startswith("forebay: 8 of 8 cells failed")
        assert errors.count(says) == 1 and "  8 x " in errors
    assert command([str(file), "--dry-run", "-q"]) == 2
    said, errors = capsys.readouterr()
    assert "no estimate" in said and says not in said
    assert "4 of the 4 cells" in errors and errors.count(says) == 1
    # A search without a best cell says why.
    search = 'search = "random"\nobjective = "max hit_ratio"\n'
    file.write_text(search + file.read_text())
    assert command([*line, "--scheduler", scheduler]) == 2
    assert says in capsys.readouterr().err


def test_failures_of_other_causes_end_a_study_with_status_1(
    file, tmp_path, scheduler, capsys, monkeypatch
):
    script = tmp_path / "failing-forebay"
    script.write_text(
        f"""#!/bin/sh
        for word; do
            case "$word" in
                */cell.toml) cat "$word" >&2; grep -q 1MiB "$word" && exit 1; exit 2;;
            esac
        done
        exec {binary()} "$@"
        """
    )
    script.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(script))
    line = [str(file), "-o", str(tmp_path / "out"), "-q", "--scheduler", scheduler]
    assert command(line) == 1
    errors = capsys.readouterr().err
    # Four configurations, each with two traces.
    assert errors.count("  2 x ") == 4 and "other errors (1 distinct)" in errors
    assert "--retry-failed" in errors


def test_cells_go_to_workers_in_batches_as_long_as_answers_say():
    batches = cluster.Batches(range(1000), workers=2)
    # The duration of a cell is not known yet.
    taken = [next(batches) for _ in range(3)]
    assert [len(batch) for batch in taken] == [1, 1, 1]
    answer = running.Answer("c", "ok", None, "{}", 0.0, 0.05, 0.05, "", "")
    batches.add([answer] * 4)
    long = next(batches)
    assert len(long) == cluster.BATCH_S / 0.05
    rest = list(batches)
    # At the end, no worker has much to do while another has nothing.
    assert {len(batch) for batch in rest[-16:]} == {1}
    assert [task for batch in (*taken, long, *rest) for task in batch] == [*range(1000)]
    alone = cluster.Batches(range(9), workers=1, most=1)
    alone.add([answer])
    assert [len(batch) for batch in alone] == [1] * 9


def test_a_killed_worker_loses_no_cell_and_none_counts_twice(
    file, tmp_path, slow, monkeypatch
):
    # Makes workers die with partly finished batches.
    monkeypatch.setattr(cluster, "BATCH_S", 10)
    out, killed = tmp_path / "out", []
    sizes = [f"{n}MiB" for n in range(1, 7)]
    file.write_text(SWEEP.format(sizes=json.dumps(sizes), repeats=2))

    def kill():
        while len(killed) < 2:
            time.sleep(0.3)
            if (out / "cells.jsonl").exists():
                lines = (out / "cells.jsonl").read_text().splitlines()
                workers = [int(json.loads(li)["worker"].split(":")[1]) for li in lines]
                alive = [pid for pid in workers if pid not in killed]
                if alive:
                    os.kill(alive[-1], signal.SIGKILL)
                    killed.append(alive[-1])

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    rows = study(file, out, workers=2)
    killer.join(10)
    assert len(killed) == 2
    assert rows.height == 48 and rows["status"].unique().to_list() == ["ok"]
    assert once_each(out, 48)


def test_a_worker_that_dies_with_a_result_has_its_task_asked_again(monkeypatch):
    """The result of one task is lost when it is fetched, as if its worker had just died."""
    from distributed import Future

    lost, fetch = [], Future.result

    def result(future, *args, **kwargs):
        if not lost:
            lost.append(future.key)
            raise type("FutureCancelledError", (Exception,), {})
        return fetch(future, *args, **kwargs)

    monkeypatch.setattr(Future, "result", result)
    with cluster.Cluster(workers=1) as workers:
        answers = dict(workers.map(abs, [-1, -2, -3]))
    assert answers == {-1: 1, -2: 2, -3: 3} and len(lost) == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_study_keeps_what_is_done_and_ends_its_commands(
    file, tmp_path, slow, stop, scheduler
):
    out = tmp_path / "out"
    file.write_text(SWEEP.format(sizes='["1MiB", "2MiB"]', repeats=2))
    program = "import sys; from forebay.lab.commands import study; sys.exit(study())"
    line = [sys.executable, "-c", program, str(file), "-o", str(out), "--workers", "2"]
    child = subprocess.Popen(
        line, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    while not (out / "cells.jsonl").exists() or len(journal_lines(out)) < 3:
        assert child.poll() is None
        time.sleep(0.05)
    if stop == signal.SIGINT:
        # A terminal sends the signal to the workers and to the commands as well.
        os.killpg(child.pid, stop)
    else:
        child.send_signal(stop)
    said = child.stderr.read()
    assert child.wait(30) == 1
    assert "cells are kept" in said and "resumes" in said, said
    assert "Traceback" not in said, said
    done = pl.read_parquet(out / "rows.parquet")
    assert 3 <= done.height < 16 and done["status"].unique().to_list() == ["ok"]
    time.sleep(0.1)
    assert not [line for line in running_programs() if str(slow) in line]
    assert study(file, out, scheduler=scheduler).height == 16 and once_each(out, 16)


def running_programs():
    """The command line of every process."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(
                path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
    return lines


def journal_lines(out):
    return (out / "cells.jsonl").read_bytes().split(b"\n")[:-1]


def start(*words):
    line = [sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_study_on_a_cluster_outlives_its_scheduler(file, tmp_path, slow, scheduler):
    file.write_text(SWEEP.format(sizes='["1MiB", "2MiB"]', repeats=2))
    here = study(file, tmp_path / "here", scheduler=scheduler)
    home = tmp_path / "scheduler.json"
    port = 20000 + os.getpid() % 20000
    address = f"tcp://127.0.0.1:{port}"
    words = ["scheduler", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--no-dashboard", "--scheduler-file", str(home)]
    worker = ["worker", address, "--nthreads", "1", "--no-dashboard"]
    worker += ["--death-timeout", "60", "--local-directory", str(tmp_path)]
    started = [start(*words), start(*worker)]
    out = tmp_path / "there"
    try:

        def restart():
            while not (out / "cells.jsonl").exists() or len(journal_lines(out)) < 3:
                time.sleep(0.05)
            started[0].kill()
            started[0].wait()
            started[0] = start(*words)
            started.append(start(*worker))

        thread = threading.Thread(target=restart, daemon=True)
        thread.start()
        there = study(file, out, scheduler=address)
        thread.join(10)
        assert once_each(out, 16)
        same = ["trace", "cache.dram", "replacement.policy", "repeat", "hit_ratio"]
        assert there.select(same).equals(here.select(same))
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_cell_that_measures_time_has_the_machine_to_itself(tmp_path):
    order = []

    def hold(exclusive, name, held):
        with running.machine_lock(exclusive, str(tmp_path)):
            order.append(name)
            held.set()
            time.sleep(0.2)
            order.append(f"{name} ends")

    held = [threading.Event() for _ in range(3)]
    threads = []
    for number, exclusive in enumerate([False, True, False]):
        names = ("simulated", "timed", "late")
        threads.append(
            threading.Thread(target=hold, args=(exclusive, names[number], held[number]))
        )
        threads[-1].start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    first, second = order.index("simulated ends"), order.index("timed")
    assert first < second and order[second + 1] == "timed ends", order


def test_two_cells_that_measure_time_never_overlap(
    synthetic, tmp_path, monkeypatch, scheduler
):
    """Runs four replays to a scratch file, on a cluster with two workers that may both measure
    time.
    """
    log, script = tmp_path / "log", tmp_path / "logged-forebay"
    script.write_text(
        f"""#!/bin/sh
        [ "$2" = replay ] && {{ echo begins >> {log}; sleep 0.2; }}
        {binary()} "$@"
        status=$?
        [ "$2" = replay ] && echo ends >> {log}
        exit $status
        """
    )
    script.chmod(0o755)
    monkeypatch.setenv("FOREBAY", str(script))
    volume = 'volume = [{ name = "v", backing = "{scratch}/disk", size = "64MiB" }]'
    (tmp_path / "replay.toml").write_text(
        f"""
        traces = [{{ path = "{synthetic["zipf", 1]}", limit = 500 }}]
        target = "replay"
        [base]
        {volume}
        "options.as_fast_as_possible" = true
        "options.write" = true
        [sweep]
        "cache.dram" = ["1MiB", "4MiB"]
        "options.queue_depth" = [1, 4]
        """
    )
    rows = study(tmp_path / "replay.toml", tmp_path / "out", scheduler=scheduler)
    assert rows["error"].to_list() == [None] * 4
    assert log.read_text().split() == ["begins", "ends"] * 4
    times = rows.sort("cell.started").select("cell.started", "cell.wall_s").rows()
    for (started, wall_s), (next_started, _) in itertools.pairwise(times):
        # One clock counts microseconds, the other is exact.
        assert (next_started - started).total_seconds() >= wall_s - 1e-3
    assert rows["cell.worker"].n_unique() == 2, "both workers may take such cells"


def test_replay_and_load_go_through_the_same_study(synthetic, tmp_path, scheduler):
    volume = 'volume = [{ name = "v", backing = "{scratch}/disk", size = "256MiB" }]'
    (tmp_path / "replay.toml").write_text(
        f"""
        traces = ["{synthetic["zipf", 1]}"]
        target = ["replay", "simulate"]
        [base]
        {volume}
        [sweep]
        "cache.dram" = ["1MiB", "4MiB"]
        "options.queue_depth" = [4]
        """
    )
    rows = study(tmp_path / "replay.toml", tmp_path / "replay", scheduler=scheduler)
    assert rows["error"].to_list() == [None] * 4
    assert sorted(rows["target"]) == ["replay", "replay", "simulate", "simulate"]
    assert (rows["throughput.requests_per_s"] > 0).all()
    (tmp_path / "disk").write_bytes(bytes(1 << 20))
    (tmp_path / "load.toml").write_text(
        f"""
        target = "load"
        traces = [{{ spec = "uniform:blocks=256,write=0" }}]
        [base]
        "options.target" = "{tmp_path / "disk"}"
        "options.requests" = 500
        [sweep]
        "options.jobs" = [1, 2]
        """
    )
    rows = study(tmp_path / "load.toml", tmp_path / "load", scheduler=scheduler)
    assert (
        rows["error"].to_list() == [None] * 2
        and rows["requests"].to_list() == [500] * 2
    )


def test_curves_and_plans_keep_their_points(synthetic, tmp_path, scheduler):
    (tmp_path / "s.toml").write_text(
        f"""
        traces = [{{ path = "{synthetic["zipf", 1]}", name = "zipf" }}]
        target = "mrc"
        [sweep]
        "options.distance" = ["trd", "urd"]
        """
    )
    assert study(tmp_path / "s.toml", tmp_path / "out", scheduler=scheduler).height == 2
    points = pl.read_parquet(tmp_path / "out" / "points.parquet")
    assert {"cell", "trace", "options.distance", "size_blocks", "miss_ratio"} <= set(
        points.columns
    )
    assert points["miss_ratio"].max() <= 1 and points.height > 20


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('trace = ["a"]', "did you mean `traces`"),
        ('traces = ["*.none"]', "matches no file"),
        ('traces = ["a"]\ntarget = "serve"', "'serve' is not one of simulate"),
        ('traces = ["a"]\n[sweep]\n"cache.dram" = "1MiB"', "list of values"),
        ('traces = ["a"]\nconstraints = ["cache.darm < 1"]\n[sweep]\n"cache.dram" = [1]',
         "did you mean `cache.dram`"),
        ('traces = ["a"]\nsearch = "optuna"', "needs an objective"),
        ("traces = [", "Invalid"),
        ('traces = ["a"]\n[[figure]]\nkind = "series"\ny = "miss_ratio"', "series = true"),
        ('traces = [{ spec = "zipf", path = "a" }]', "either `path` or `spec`"),
        ('traces = ["a"]\nseed = "abc"', "s.toml: seed must be a whole number, not 'abc'"),
        ('traces = ["a"]\nsearch_seed = 0.5', "search_seed must be a whole number"),
        ('traces = ["a"]\nconstraints = [1]', "constraints must be a list of strings, not [1]"),
        ('traces = ["a"]\nfigure = [1]', "figure: a figure is a table, not 1"),
        ('traces = ["a"]\nfigure = [{ x = 1 }]', "figure: x must be text, not 1"),
        ('traces = ["a"]\nfigure = [{ kind = "line", y = ["a"] }]', "figure: y must be text"),
        ('traces = ["a"]\nfigure = [{ x = "a", log = true }]', 'figure: log must be "x", "y" or'),
        ("traces = [{ spec = 5 }]", "traces: spec must be text, not 5"),
        ('traces = [{ path = "a", volumes = "vm1" }]', "traces: volumes must be a list of volumes"),
        ('traces = [{ path = "a", each_volume = "no" }]', "traces: each_volume must be true or"),
        ('traces = ["a"]\nseries = "no"', "series must be true or false, not 'no'"),
        ('traces = ["a"]\nrepeats = 0.5', "repeats must be a whole number above 0, not 0.5"),
        ('traces = ["a"]\ntarget = []', "target must name a command"),
        ('traces = ["a"]\n[base]\n"cache.dram" = 2020-01-01', "base: cache.dram: a study cannot"),
        ('traces = ["a"]\n[sweep]\n"cache.dram" = ["1MiB", "2MiB", "1MiB"]',
         'sweep: cache.dram has the value "1MiB" more than once'),
        ('traces = [{ spec = "zipf:requests=100" }]\nconstraints = ["-replacement.policy < 0"]\n'
         '[sweep]\n"replacement.policy" = ["lru"]',
         "s.toml: constraint `-replacement.policy < 0`: bad operand"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_before_anything_runs(
    text, says, tmp_path, capsys
):
    (tmp_path / "s.toml").write_text(text)
    out = tmp_path / "out"
    assert command([str(tmp_path / "s.toml"), "-o", str(out)]) in (1, 2)
    assert says in capsys.readouterr().err
    assert not (out / "rows.parquet").exists()


def test_a_dry_run_counts_and_estimates_and_leaves_nothing(file, capsys, tmp_path):
    before = sorted(tmp_path.iterdir())
    assert command([str(file), "--dry-run", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("8 cells (2 traces x 4 combinations") and "about" in said
    assert sorted(tmp_path.iterdir()) == before


def test_a_scheduler_that_is_not_there_is_named(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(cluster.Cluster, "_connect", _short(cluster.Cluster._connect))
    line = [str(file), "-o", str(tmp_path / "o"), "--scheduler", "tcp://127.0.0.1:9"]
    assert command(line) == 1
    assert "tcp://127.0.0.1:9" in capsys.readouterr().err


def _short(connect):
    return lambda self, _timeout: connect(self, 1.0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"cell": "x"', "delimiter"),
        ('{"cell": "x", "rows": 3}', "an answer has no key `rows`"),
        ('{"cell": "x", "status": "ok"}', "the key `error` is missing"),
        ('{"cell": ["x"]}', '`cell` cannot be ["x"]'),
        ('{"forget": ["x"]}', "an answer has no key `forget`"),
        ("[1, 2]", "not a JSON object"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_line_that_is_no_answer_is_named_and_nothing_is_changed(
    line, says, file, tmp_path, scheduler, capsys
):
    out = tmp_path / "out"
    out.mkdir()
    forgotten = '{"forget": "abc"}\n'
    text = f"{forgotten}{line}\n{forgotten}".encode(errors="surrogateescape")
    (out / "cells.jsonl").write_bytes(text)
    command_line = [str(file), "-o", str(out), "--scheduler", scheduler, "-q"]
    assert command(command_line) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"forebay: {out / 'cells.jsonl'}, line 2: "), errors
    assert says in errors and "remove the line" in errors
    assert (out / "cells.jsonl").read_bytes() == text
    # The same process can use the journal once it is repaired.
    (out / "cells.jsonl").write_text(forgotten)
    assert command(command_line) == 0


def test_journals_of_earlier_versions_are_read(file, tmp_path, scheduler):
    out = tmp_path / "out"
    study(file, out, scheduler=scheduler)
    lines = journal(out)
    for line in lines:
        del line["exit_status"]
    (out / "cells.jsonl").write_text("".join(json.dumps(li) + "\n" for li in lines))
    outcome = Study(spec.read(file), out, quiet=True).run(scheduler=scheduler)
    assert (outcome.cells, outcome.known) == (8, 8)


def test_two_studies_do_not_share_a_directory(file, tmp_path):
    from forebay.lab.journal import Journal

    out = tmp_path / "out"
    with Journal(out):
        (out / "study.toml").write_text("the study that runs")
        with pytest.raises(forebay.ForebayError, match="another study is running"):
            study(file, out, workers=1)
    assert (out / "study.toml").read_text() == "the study that runs"


def test_tables_of_an_earlier_form_of_a_study_are_removed(
    synthetic, tmp_path, scheduler
):
    file, out = tmp_path / "s.toml", tmp_path / "out"

    def tables(text):
        traces = f'traces = ["{synthetic["zipf", 1]}"]\n'
        sweep = '\n[sweep]\n"cache.dram" = ["1MiB", "2MiB"]'
        file.write_text(traces + text + sweep)
        study(file, out, scheduler=scheduler)
        return {path.stem for path in out.glob("*.parquet")}

    assert tables("repeats = 2") == {"rows", "repeats"}
    search = 'search = "random"\nobjective = "max hit_ratio"'
    assert tables(search) == {"rows", "search"}
    assert tables("") == {"rows"}
    file.write_text(f'traces = ["{synthetic["zipf", 1]}"]\ntarget = "mrc"')
    study(file, out, scheduler=scheduler)
    assert (out / "points.parquet").exists()
    assert tables("") == {"rows"}
