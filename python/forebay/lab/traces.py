"""The traces of a study: files found by globs, volumes of a file, and synthetic traces, each made
once.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import subprocess
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forebay._run import ForebayError, binary
from forebay.lab.running import content_hash, version_of
from forebay.lab.spec import StudySpec

BLOCK_BYTES = 4096


@dataclass(frozen=True)
class Trace:
    """One workload of a study."""

    #: The name of the trace in rows.
    name: str
    #: The path of the file; for `load`, the SPEC itself.
    path: str
    #: The options for reading it, as words.
    words: tuple[str, ...]
    #: A hash of its contents and of the options for reading it.
    hash: str
    #: Bytes of its distinct blocks, if the study needs them.
    footprint_bytes: int | None = None

    def arguments(self) -> list[str]:
        return [self.path, *self.words]


class TraceCache:
    """Known facts about files, by path and version, so that each is determined only once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._known = json.loads(path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def hash(self, path: str) -> str:
        return self._get("hash", path, (), lambda: _hash(path))

    def info(self, path: str, words: tuple[str, ...]) -> dict[str, Any]:
        return self._get("info", path, words, lambda: _info(path, words))

    def save(self) -> None:
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._known))
        partial.replace(self._path)

    def _get(self, what: str, path: str, words: tuple[str, ...], find: Any) -> Any:
        key = json.dumps([what, path, *version_of(path), *words])
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]


def resolve(spec: StudySpec, directory: Path, footprints: bool) -> list[Trace]:
    """The traces that a study names, in its order; synthetic traces are created in `directory`.

    Raises:
        ForebayError: A glob finds nothing, a trace cannot be read, or two have the same name.
    """
    cache = TraceCache(directory / "traces.json")
    load = "load" in spec.targets
    if load and len(spec.targets) > 1:
        raise ForebayError(
            "the target `load` generates its own requests: make it the only target", 2
        )
    entries = [one for entry in spec.traces for one in _files(entry, spec, load)]
    if not entries:
        raise ForebayError("a study needs at least one trace", 2)
    made = directory / "traces"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        nested = pool.map(
            lambda entry: _traces(entry, cache, made, footprints, load), entries
        )
        try:
            traces = [trace for group in nested for trace in group]
        finally:
            cache.save()
    names = [trace.name for trace in traces]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ForebayError(f"two traces are called {twice}; give each a `name`", 2)
    return traces


def _files(
    entry: dict[str, Any], spec: StudySpec, load: bool
) -> Iterable[dict[str, Any]]:
    if "spec" in entry:
        return [entry]
    if load:
        raise ForebayError(
            'traces: the target `load` needs entries such as {spec = "zipf"}', 2
        )
    pattern = str(spec.directory / entry["path"])
    found = sorted(glob.glob(pattern, recursive=True)) or (
        [pattern] if os.path.exists(pattern) else []
    )
    files = [path for path in found if os.path.isfile(path)]
    if not files:
        raise ForebayError(f"traces: {pattern} matches no file", 1)
    if len(files) > 1 and "name" in entry:
        raise ForebayError(
            f"traces: {pattern} matches several files, but its entry gives a single `name`",
            2,
        )
    return [{**entry, "path": path} for path in files]


def _traces(
    entry: dict[str, Any],
    cache: TraceCache,
    made: Path,
    footprints: bool,
    load: bool,
) -> list[Trace]:
    words = tuple(
        word
        for option in ("format", "limit")
        if option in entry
        for word in (f"--{option}", str(entry[option]))
    )
    if "spec" in entry and load:
        name, text = entry.get("name", entry["spec"]), entry["spec"]
        return [Trace(name, text, (), _spec_hash(text))]
    path = _synthesise(entry["spec"], made) if "spec" in entry else entry["path"]
    name = entry.get("name", entry.get("spec", path))
    volumes = entry.get("volumes")
    if entry.get("each_volume"):
        volumes = [[v["name"]] for v in cache.info(path, words)["volumes"]]
    elif volumes is not None:
        volumes = [volumes]
    traces = []
    for chosen in volumes or [None]:
        how, called = words, name
        if chosen is not None:
            how = (*words, "--volumes", ",".join(map(str, chosen)))
            if entry.get("each_volume") or "name" not in entry:
                called = f"{name}#{','.join(map(str, chosen))}"
        identity = hashlib.sha256(json.dumps([cache.hash(path), how]).encode())
        footprint = None
        if footprints:
            footprint = cache.info(path, how)["footprint_blocks"] * BLOCK_BYTES
        path = os.path.abspath(path)
        traces.append(Trace(called, path, how, identity.hexdigest(), footprint))
    return traces


def _synthesise(text: str, made: Path) -> str:
    made.mkdir(parents=True, exist_ok=True)
    path = made / f"{_spec_hash(text)[:16]}.parquet"
    if not path.exists():
        partial = path.with_suffix(".partial.parquet")
        _ask(["trace", "synth", text, "-o", str(partial)])
        partial.replace(path)
    return str(path)


def _spec_hash(text: str) -> str:
    """A hash of a synthetic workload: of its SPEC and, if that is the path of a file, of the file's
    contents.
    """
    contents = content_hash(text) if os.path.isfile(text) else ""
    return hashlib.sha256(f"{text}{contents}".encode()).hexdigest()


def sampled(trace: Trace, rate: float, directory: Path) -> Trace:
    """The trace at a sample rate, created once; scale caches in front of it by the rate."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{trace.hash[:16]}-{rate:g}.parquet"
    if not path.exists():
        partial = path.with_suffix(".partial.parquet")
        words = ["--rate", f"{rate:g}", "--bits", "0", "-o", str(partial)]
        _ask(["sample", *trace.arguments(), *words])
        partial.replace(path)
    identity = hashlib.sha256(f"{trace.hash} sampled at {rate:g}".encode()).hexdigest()
    footprint = trace.footprint_bytes
    return Trace(
        trace.name,
        str(path.resolve()),
        (),
        identity,
        None if footprint is None else int(footprint * rate),
    )


def _hash(path: str) -> str:
    with open(path, "rb") as file:
        digest = hashlib.blake2b(digest_size=16)
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _info(path: str, words: tuple[str, ...]) -> dict[str, Any]:
    document = json.loads(_ask(["trace", "info", path, *words, "--json"]))
    return {
        "footprint_blocks": document["footprint_blocks"]["all"],
        "requests": document["requests"],
        "volumes": [{"name": v["volume"]} for v in document["per_volume"]],
    }


def _ask(words: list[str]) -> str:
    done = subprocess.run(
        [binary(), "--quiet", *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ForebayError(
            done.stderr.strip().removeprefix("forebay: "), done.returncode
        )
    return done.stdout
