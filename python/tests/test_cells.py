"""Cells: what determines a cell's name, what makes it run again, and which cells a study has."""

import os
import re
import subprocess
import time

from forebay._run import binary
from forebay.lab import cells, running, spec, traces
from forebay.lab.study import Study, study


def test_cells_are_named_by_all_that_their_answer_depends_on(tmp_path):
    def names(text, **trace):
        study = spec.parse(text, tmp_path)
        given = {"name": "t", "path": "t", "words": (), "hash": "h", **trace}
        one = traces.Trace(**given)
        return [cell.name("binary") for cell in cells.expand(study, [one])]

    base = 'traces = ["t"]\n[sweep]\n"cache.dram" = ["1MiB"]\n'
    first = names(base)
    assert names(base, name="other", path="elsewhere") == first
    for other in (
        names(base, hash="i"),
        names(base.replace("1MiB", "2MiB")),
        names("seed = 7\n" + base),
        names(base + '[base]\n"options.untimed" = true\n'),
    ):
        assert other != first
    assert len(set(names("repeats = 3\n" + base))) == 3


def test_options_whose_value_can_be_omitted_take_it(synthetic, tmp_path, scheduler):
    (tmp_path / "s.toml").write_text(
        f"""
        traces = [{{ path = "{synthetic["zipf", 1]}", limit = 200 }}]
        target = "replay"
        [base]
        volume = [{{ name = "v", backing = "{{scratch}}/disk", size = "64MiB" }}]
        "options.write" = true
        "options.skip_idle" = "5ms"
        [sweep]
        "cache.dram" = ["1MiB"]
        """
    )
    rows = study(tmp_path / "s.toml", tmp_path / "out", scheduler=scheduler)
    assert rows["error"].to_list() == [None]
    assert "--skip-idle=5ms" in rows["cell.command"][0]


def rewritten(path, text):
    """Writes other contents of the same size, and restores the modification time."""
    before = path.stat()
    time.sleep(0.02)
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def test_a_trace_with_other_contents_of_the_same_size_and_time_runs_again(
    tmp_path, scheduler
):
    path = tmp_path / "t.csv"
    lines = [f"{n},r,{n % 9 * 4096},4096\n" for n in range(100)]
    path.write_text("time_us,op,offset,length\n" + "".join(lines))
    (tmp_path / "s.toml").write_text(
        f'traces = ["{path}"]\n[sweep]\n"cache.dram" = ["1MiB"]\n'
    )
    first = study(tmp_path / "s.toml", tmp_path / "out", scheduler=scheduler)
    rewritten(path, path.read_text().replace(",r,", ",w,"))
    second = study(tmp_path / "s.toml", tmp_path / "out", scheduler=scheduler)
    assert first["cell"][0] != second["cell"][0]
    assert first["cell.trace_hash"][0] != second["cell.trace_hash"][0]


def test_plans_with_an_edited_catalogue_run_again(synthetic, tmp_path, scheduler):
    catalogue = tmp_path / "cat.toml"
    words = [binary(), "plan", "--print-devices"]
    builtin = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    catalogue.write_text(builtin)
    file, out = tmp_path / "s.toml", tmp_path / "out"
    file.write_text(
        f"""
        traces = ["{synthetic["zipf", 1]}"]
        target = "plan"
        [base]
        "options.devices" = "{catalogue}"
        "options.budget" = "20%"
        """
    )
    first = study(file, out, scheduler=scheduler)
    again = Study(spec.read(file), out, quiet=True).run(scheduler=scheduler)
    assert again.known == 1 and again.rows.equals(first)
    slower = re.sub(r"(?m)^read_latency_us = .*", "read_latency_us = 5000", builtin)
    assert slower != builtin
    catalogue.write_text(slower)
    second = Study(spec.read(file), out, quiet=True).run(scheduler=scheduler)
    assert second.known == 0
    latency = "choices.0.mean_latency_us"
    assert second.rows[latency][0] > 10 * first[latency][0]


def test_a_workload_described_in_a_file_is_made_again_when_the_file_changes(
    tmp_path, scheduler
):
    described, file, out = tmp_path / "w.toml", tmp_path / "s.toml", tmp_path / "out"
    file.write_text(
        f'traces = [{{ spec = "{described}" }}]\n[sweep]\n"cache.dram" = ["1MiB"]\n'
    )

    def requests(count):
        component = '[[component]]\npattern = "uniform"\nblocks = 50\n'
        described.write_text(f"requests = {count}\n{component}")
        return study(file, out, scheduler=scheduler)["requests"].to_list()

    assert (requests(100), requests(200)) == ([100], [200])
    text = f'target = "load"\ntraces = [{{ spec = "{described}" }}]\n'
    load = [traces.resolve(spec.parse(text, tmp_path), out, False)]
    described.write_text("other")
    load.append(traces.resolve(spec.parse(text, tmp_path), out, False))
    assert load[0][0].hash != load[1][0].hash


def test_files_that_a_cell_measures_or_writes_do_not_name_it(tmp_path):
    disk = tmp_path / "disk"
    one = traces.Trace("t", "t", (), "h")

    def names(option, contents):
        disk.write_text(contents)
        text = (
            f'traces = ["t"]\ntarget = "replay"\n[base]\n"options.{option}" = "{disk}"'
        )
        cells_made = cells.expand(spec.parse(text, tmp_path), [one])
        return [cell.name("binary") for cell in cells_made]

    assert names("target", "a") == names("target", "b")
    assert names("config", "a") != names("config", "b")


def test_a_worker_notices_that_a_file_of_an_option_has_changed(tmp_path, synthetic):
    config = tmp_path / "c.toml"
    config.write_text('cache.dram = "1MiB"')
    text = f'traces = ["t"]\n[base]\n"options.config" = "{config}"'
    one = traces.Trace("t", str(synthetic["zipf", 1]), (), "h")
    (cell,) = cells.expand(spec.parse(text, tmp_path), [one])
    found = running.binary_hash(binary())
    task = cell.task(study="s", binary=binary(), binary_hash=found)
    assert running.run(task).error is None
    config.write_text('cache.dram = "2MiB"')
    assert f"{config} has changed" in running.run(task).error


def test_a_worker_notices_another_command_of_the_same_size_and_time(tmp_path):
    path = tmp_path / "forebay"
    path.write_text("one")
    first = running.content_hash(str(path))
    assert first == running.binary_hash(str(path))
    rewritten(path, "two")
    assert running.content_hash(str(path)) == running.binary_hash(str(path)) != first


def test_shares_tables_and_constraints_make_cells(tmp_path):
    study = spec.parse(
        """
        traces = ["t"]
        constraints = ["cache.dram < flash.size", "not (tiers == 'two' and cache.dram == '1MiB')"]
        [sweep]
        "cache.dram" = ["1MiB", "10%"]
        tiers = [{ name = "one", "flash.size" = "unset" }, { name = "two", "flash.size" = "8MiB" }]
        """,
        tmp_path,
    )
    trace = traces.Trace("t", "t", (), "h", footprint_bytes=40 << 20)
    made = list(cells.expand(study, [trace]))
    assert [tuple(cell.swept.values()) for cell in made] == [
        ("1MiB", "one"),
        ("10%", "one"),
        ("10%", "two"),
    ]
    assert "cache.dram = 4194304" in made[1].config()
    assert "flash" not in made[1].config() and "8MiB" in made[2].config()
