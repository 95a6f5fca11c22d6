#!/usr/bin/env python3
"""The effect of a dead, slow or full store on other volumes, as a Markdown table.

    cargo build --release -p forebay && bench/isolation.py [--seconds S] [--layouts slots,log] [CASE...]
    cargo build --release -p forebay && bench/isolation.py --simulated [--backing DEVICE] [CASE...]

Runs one server with four volumes, whose stores are nbdkit's memory with a delay of a millisecond,
and one fio for each volume: requests of 4 KiB, three in ten of them writes, at a limited rate, so
that the processors are not the bottleneck. In each CASE the store of the first volume fails: `dead`
(after five seconds all its operations end with EIO), `full` (after five seconds its writes end with
ENOSPC) or `slow` (each takes 100 times as long, from the start). The table compares the other three
volumes with an earlier run without failures, and then shows the results of the first volume.
Afterwards the store works again, or is still slow, and everything must be destaged. The contents of
the volumes are not read back.

`--simulated` simulates the same, without noise: `forebay simulate` with four stores of the
catalogue, by default SANs, and 1,000 requests per second and volume, which arrive at random
(Poisson). In each CASE the first store fails from 10 s to the end; afterwards it works again, and
everything must be destaged. All requests are answered, however late, so the table shows the number
answered without an error instead of requests per second. No other program is needed.

Needs fio with its nbd engine, and nbdkit with its filters error and delay. FOREBAY=path of the binary
(target/release/forebay).
"""

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
FOREBAY = os.environ.get("FOREBAY") or TARGET / "release" / "forebay"
VOLUMES = ["vm1", "vm2", "vm3", "vm4"]
CASES = ["dead", "slow", "full"]
# Seconds before a store fails, in a real run and in a simulation.
BEFORE, BEFORE_SIMULATED = 5, 10
# The failures of the first store, in the terms of `forebay simulate --outage`.
TROUBLE = {"dead": "dead", "slow": "slow:100", "full": "full"}
TIERS = """[cache]
dram = "32MiB"
write_policy = "write-back"
[flash]
path = "{place}/flash.img"
size = "{flash}"
layout = "{layout}"
"""


def store(case, place, name):
    """Starts a store. In a failing case, the first volume's store fails once the file `fails`
    exists.
    """
    bad = case != "healthy" and name == VOLUMES[0]
    filters, parameters = [], ["delay-read=1ms", "delay-write=1ms"]
    if bad and case == "slow":
        parameters = ["delay-read=100ms", "delay-write=100ms", "delay-zero=100ms"]
    elif bad:
        filters = ["--filter=error"]
        kinds = ["pread", "pwrite", "trim", "zero"] if case == "dead" else ["pwrite"]
        error = "EIO" if case == "dead" else "ENOSPC"
        for kind in kinds:
            parameters += [
                f"error-{kind}={error}",
                f"error-{kind}-rate=100%",
                f"error-{kind}-file={place}/fails",
            ]
    socket = place / f"{name}.store"
    command = [
        "nbdkit",
        "-f",
        "-U",
        socket,
        *filters,
        "--filter=delay",
        "memory",
        "257M",
    ]
    return subprocess.Popen([*command, *parameters])


def configure(place, layout, flash):
    text = TIERS.format(place=place, layout=layout, flash=flash)
    text += f"""[serve]
nbd = "unix:{place}/nbd.sock"
control = "unix:{place}/control.sock"
"""
    for name in VOLUMES:
        uri = f"nbd+unix:///?socket={place}/{name}.store"
        text += f'[[volume]]\nname = "{name}"\nbacking = "{uri}"\n'
    path = place / "forebay.toml"
    path.write_text(text)
    return path


def load(place, name, seconds, rate):
    """Starts fio for a volume; its output is the report."""
    return subprocess.Popen(
        [
            *["fio", f"--name={name}", "--ioengine=nbd", "--output-format=json"],
            f"--uri=nbd+unix:///{name}?socket={place}/nbd.sock",
            *["--rw=randrw", "--rwmixread=70", "--bs=4k", "--iodepth=4", "--size=256m"],
            *[
                "--random_distribution=zipf:0.9",
                "--randseed=7",
                "--continue_on_error=all",
            ],
            *[f"--rate_iops={rate * 7 // 10},{rate * 3 // 10}", "--norandommap"],
            *["--time_based", f"--runtime={seconds}", f"--ramp_time={BEFORE}"],
        ],
        stdout=subprocess.PIPE,
        text=True,
    )


def job(printed):
    """The job in fio's report, without the messages that fio prints before it."""
    return json.loads(printed[printed.index("{\n") :])["jobs"][0]


def wait_for(path, what):
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    sys.exit(f"{what} did not start")


def run(case, layout, seconds, rate, flash):
    """Fio's report of each volume, and whether everything was destaged in the end."""
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as place:
        place = Path(place)
        children = [store(case, place, name) for name in VOLUMES]
        try:
            for name in VOLUMES:
                wait_for(place / f"{name}.store", f"the store of {name}")
            config = configure(place, layout, flash)
            log = (place / "log").open("w")
            server = subprocess.Popen(
                [FOREBAY, "-q", "serve", "--config", config],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
            children.append(server)
            if not server.stdout.readline():
                sys.exit((place / "log").read_text())
            loads = [load(place, name, seconds, rate) for name in VOLUMES]
            children += loads
            time.sleep(BEFORE)
            (place / "fails").touch()
            reports = [job(load.communicate()[0]) for load in loads]
            (place / "fails").unlink()
            control = ["--control", f"unix:{place}/control.sock"]
            subprocess.run([FOREBAY, "ctl", "resume", *control], capture_output=True)
            destaged = subprocess.run(
                [FOREBAY, "ctl", "destage", *control], capture_output=True
            )
            return reports, destaged.returncode == 0
        finally:
            for child in children:
                child.kill()
            for child in children:
                child.wait()


def seen(report):
    """Requests per second including failed ones, 99th percentiles of reads and writes in
    microseconds, errors.
    """
    both = [report["read"], report["write"]]
    p99 = [d["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1e3 for d in both]
    errors = report.get("total_err", 0)
    return sum(d["iops"] for d in both), *p99, errors


def measured(case, layout, args):
    """The results of each volume in a real run, and whether everything was destaged afterwards."""
    reports, destaged = run(case, layout, args.seconds, args.rate, args.flash)
    return list(map(seen, reports)), "yes" if destaged else "no"


def synthesize(path, seconds, rate):
    """Writes the requests of all volumes as a trace."""
    phase = f"rate={rate * len(VOLUMES)},arrival=poisson,duration={seconds}s"
    # The duration ends the trace; the number of requests is only an upper limit.
    phase += f",requests={2 * seconds * rate * len(VOLUMES)}"
    volume = "zipf:volume={},blocks=65536,theta=0.9,write=0.3"
    components = [volume.format(name) for name in VOLUMES]
    components[0] += f",{phase}"
    command = [FOREBAY, "-q", "trace", "synth", " + ".join(components), "-o", path]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def simulated(trace, case, layout, args):
    """The results of each volume in a simulation, and whether everything was destaged
    afterwards.
    """
    config = trace.parent / f"{layout}.toml"
    config.write_text(TIERS.format(place=trace.parent, layout=layout, flash=args.flash))
    command = [FOREBAY, "-q", "simulate", trace, "--config", config, "--json"]
    command += ["--backing-device", args.backing]
    if case != "healthy":
        # The outage ends before everything is destaged.
        span = f"{BEFORE_SIMULATED}s..{args.seconds + BEFORE_SIMULATED}s"
        command += ["--outage", f"{VOLUMES[0]}={TROUBLE[case]}@{span}"]
    answer = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    )
    of_each = []
    for volume in sorted(answer["volumes"], key=lambda v: VOLUMES.index(v["volume"])):
        p99 = [volume["latency_us"][kind]["p99"] for kind in ("read", "write")]
        answered = volume["requests"] - volume["errors"]
        of_each.append((answered, *p99, volume["errors"]))
    after = answer["after_outages"]
    if after is None:
        return of_each, "-"
    return of_each, "yes" if after["destaged"] else f"no, {after['dirty_blocks']} left"


def table(args, rates, one_case):
    """Prints a row for each layout and case; `rates` names the first numbers."""
    columns = ["layout", "store of vm1", rates, "p99 of reads", "p99 of writes"]
    columns += ["errors", f"vm1: {rates}, errors", "all data destaged afterwards"]
    print("| " + " | ".join(columns) + " |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |")
    for layout in args.layouts.split(","):
        healthy = None
        for case in ["healthy", *args.cases]:
            (first, *others), destaged = one_case(case, layout, args)
            rate = sum(o[0] for o in others)
            reads, writes = max(o[1] for o in others), max(o[2] for o in others)
            errors = sum(o[3] for o in others)
            healthy = healthy or (rate, reads, writes)

            def against(value, unit, at):
                ratio = f" ({value / healthy[at]:.2f})" if case != "healthy" else ""
                return f"{value:,.0f}{unit}{ratio}"

            cells = [layout, case, against(rate, "", 0), against(reads, " µs", 1)]
            cells += [
                against(writes, " µs", 2),
                errors,
                f"{first[0]:,.0f}, {first[3]:,}",
            ]
            cells += [destaged]
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "cases", nargs="*", default=CASES, metavar="CASE", help="dead, slow or full"
    )
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument(
        "--seconds", type=int, help="duration of each run (60; if simulated, 600)"
    )
    parser.add_argument(
        "--rate",
        type=int,
        help="requests per second and volume (500; if simulated, 1000)",
    )
    parser.add_argument("--layouts", default="slots,log")
    parser.add_argument("--flash", default="256MiB", help="size of the flash tier")
    parser.add_argument(
        "--backing", default="san", help="device of the stores in a simulated run"
    )
    args = parser.parse_args()
    for name in args.cases:
        if name not in CASES:
            parser.error(f"{name} is not one of {', '.join(CASES)}")
    args.seconds = args.seconds or (600 if args.simulated else 60)
    args.rate = args.rate or (1000 if args.simulated else 500)
    if not args.simulated:
        return table(args, "requests/s", measured)
    with tempfile.TemporaryDirectory(prefix="forebay-bench-") as place:
        trace = Path(place) / "volumes.parquet"
        synthesize(trace, args.seconds, args.rate)
        table(args, "requests answered", functools.partial(simulated, trace))


if __name__ == "__main__":
    main()
