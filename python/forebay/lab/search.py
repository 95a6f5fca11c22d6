"""Search instead of a sweep: finds a good combination at the cost of only a few.

``random`` tries combinations at random. With ``optuna``, a tree-structured Parzen estimator (TPE, Bergstra
2011) proposes them. With several ``fidelity`` rates, the search uses successive halving: it tries many
combinations on a small sample of the trace, with caches scaled down by the same rate, and the best of these
on larger samples, up to the whole trace. Each rung gets an equal part of the cost. Proposals come in batches
of a fixed size and depend only on answers, so a search has the same result with any number of workers.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import random
import resource
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from forebay._run import ForebayError
from forebay.lab.cells import Cell, combinations, make, scaled
from forebay.lab.failures import exit_status, failure
from forebay.lab.rows import flat
from forebay.lab.running import Answer
from forebay.lab.spec import Objective, StudySpec
from forebay.lab.traces import Trace, sampled
from forebay.lab.values import number

#: Number of combinations to try at a time.
BATCH = 8
#: After this many repeated proposals in a row, the search tries a random combination.
STALE_MAX = 12

Ask = Callable[[list[Cell]], list[Answer]]
Combination = dict[str, Any]


def search(
    spec: StudySpec,
    traces: list[Trace],
    directory: Path,
    ask: Ask,
    known: Callable[[Trace], list[Answer] | None],
) -> tuple[list[Cell], pl.DataFrame]:
    """Searches for each trace; returns the cells at full rate, and a row with the best combination
    of each trace.
    """
    if len(spec.targets) > 1:
        raise ForebayError("a search must have exactly one target", 2)
    assert spec.objective is not None, "the file was checked"
    cells: list[Cell] = []
    found = []
    for trace in traces:
        hunt = _Hunt(spec, spec.objective, trace, directory, ask)
        if not hunt.combinations:
            raise ForebayError(
                f"no combination meets the constraints for {trace.name}", 2
            )
        (hunt.at_random if spec.search == "random" else hunt.by_optuna)()
        cells += hunt.full.values()
        found.append(hunt.row(known(trace)))
    return cells, pl.DataFrame(found, infer_schema_length=None)


def sentence(found: dict[str, Any]) -> str:
    """The result of a search in one line."""
    text = f"{found['trace']}: {found['objective']} {found['best']:.6g} at {found['combination']}"
    if found["gap"] is not None:
        return (
            f"{text}; the full sweep's best is {found['full_best']:.6g} ({found['gap']:.1%} off); "
            f"the search took {found['cost_share']:.1%} of the cost of the full sweep"
        )
    return f"{text}, at about {found['cost_share']:.1%} of the cost of the full sweep"


class _Hunt:
    """The search for one trace."""

    def __init__(
        self,
        spec: StudySpec,
        objective: Objective,
        trace: Trace,
        directory: Path,
        ask: Ask,
    ) -> None:
        self._spec, self._objective, self._trace = spec, objective, trace
        self._directory, self._ask = directory, ask
        pairs = [(c, make(spec, trace, spec.targets[0], c)) for c in combinations(spec)]
        cells = [(c, cell) for c, cell in pairs if cell is not None]
        self.combinations: list[Combination] = [c for c, _ in cells]
        self._cells = {_key(c): cell for c, cell in cells}
        #: The cells at full rate that were run.
        self.full: dict[str, Cell] = {}
        self._values: dict[tuple[str, float], float | None] = {}
        self._cost_s = 0.0
        self._sampled = 0
        self._failed: list[Answer] = []
        self._full_cost_s: list[float] = []

    def at_random(self) -> None:
        chosen = random.Random(self._spec.search_seed).sample(
            self.combinations, min(self._budget(), len(self.combinations))
        )
        self._try(chosen, 1.0)

    def by_optuna(self) -> None:
        rates = self._spec.fidelity
        if len(self.combinations) <= self._budget():
            rates = [1.0]
        part = self._budget() / len(rates)
        best = self._propose(max(1, round(part / rates[0])), rates[0])
        for rate in rates[1:]:
            best = best[: max(1, int(part / rate))]
            self._try(best, rate)
            best = self._ranked(best, rate)

    def row(self, known: list[Answer] | None) -> dict[str, Any]:
        tried = [json.loads(key) for key in self.full]
        ranked = self._ranked(tried, 1.0)
        best = ranked[0] if ranked else None
        value = self._values[_key(best), 1.0] if best is not None else None
        if best is None or value is None:
            raise self._failure()
        mean = sum(self._full_cost_s) / len(self._full_cost_s)
        row = {
            "trace": self._trace.name,
            "search": self._spec.search,
            "objective": self._objective.field,
            "best": value,
            "combination": json.dumps(best),
            "combinations": len(self.combinations),
            "cells_full": len(self.full),
            "cells_sampled": self._sampled,
            "cost_s": self._cost_s,
            "cost_share": self._cost_s / (mean * len(self.combinations)),
            "full_best": None,
            "full_cost_s": None,
            "gap": None,
        }
        if known is not None:
            values = [v for a in known if (v := self._value(a)) is not None]
            full = (max if self._objective.largest else min)(values)
            cost = sum(answer.cpu_s for answer in known)
            row |= {
                "full_best": full,
                "full_cost_s": cost,
                "gap": abs(value - full) / abs(full) if full else abs(value),
                "cost_share": self._cost_s / cost,
            }
        return row

    def _failure(self) -> ForebayError:
        """The error of a search without a result."""
        return failure(
            f"{self._trace.name}: no cell of the search has a value for `{self._objective.field}`",
            (answer.error for answer in self._failed),
            kept=f"all results, in {self._directory / 'cells.jsonl'}",
            status=exit_status(self._failed),
        )

    def _budget(self) -> int:
        """The cost limit of the search, as a number of cells at full rate."""
        trials = self._spec.trials
        return max(1, int(trials if trials > 1 else trials * len(self.combinations)))

    def _try(self, chosen: Sequence[Combination], rate: float) -> list[float | None]:
        """Tries combinations; returns the objective of each, `None` if its cell failed."""
        cells = [self._cell(combination, rate) for combination in chosen]
        answers = self._ask(cells)
        for combination, cell, answer in zip(chosen, cells, answers, strict=True):
            value = self._value(answer)
            self._values[_key(combination), rate] = value
            self._cost_s += answer.cpu_s
            if answer.status != "ok":
                self._failed.append(answer)
            if rate == 1:
                self.full[_key(combination)] = cell
                self._full_cost_s.append(answer.cpu_s)
            else:
                self._sampled += 1
        return [self._values[_key(combination), rate] for combination in chosen]

    def _cell(self, combination: Combination, rate: float) -> Cell:
        cell = self._cells[_key(combination)]
        if rate == 1:
            return cell
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        trace = sampled(self._trace, rate, self._directory / "traces")
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Only the first call creates the sample, which is part of the cost of the search.
        self._cost_s += now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
        values = scaled(cell.values, rate)
        return dataclasses.replace(cell, trace=trace, values=values, rate=rate)

    def _value(self, answer: Answer) -> float | None:
        if answer.document is None:
            return None
        fields = flat(json.loads(answer.document))
        name = self._objective.field
        value = fields.get(name)
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            numbers = [k for k, v in fields.items() if isinstance(v, (int, float))]
            near = difflib.get_close_matches(name, numbers, 3, 0.3)
            what = f"objective: rows have no numeric column `{name}`; similar names: {', '.join(near)}"
            raise ForebayError(what, 2)
        return float(value) if math.isfinite(value) else None

    def _ranked(self, chosen: Sequence[Combination], rate: float) -> list[Combination]:
        """The combinations, best first, without those that failed."""
        sign = -1 if self._objective.largest else 1
        scored = [
            (sign * value, number, combination)
            for number, combination in enumerate(chosen)
            if (value := self._values.get((_key(combination), rate))) is not None
        ]
        return [c for _, _, c in sorted(scored, key=lambda one: one[:2])]

    def _propose(self, count: int, rate: float) -> list[Combination]:
        """Tries `count` combinations that TPE proposes; returns them, best first."""
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.TPESampler(
            seed=self._spec.search_seed, n_startup_trials=min(10, max(2, count // 4))
        )
        direction = "maximize" if self._objective.largest else "minimize"
        study = optuna.create_study(sampler=sampler, direction=direction)
        orders = {key: _ordered(values) for key, values in self._spec.sweep.items()}
        chance = random.Random(self._spec.search_seed)
        tried: dict[str, Combination] = {}
        count = min(count, len(self.combinations))
        while len(tried) < count:
            batch: list[tuple[Any, Combination]] = []
            stale = 0
            while len(batch) < min(BATCH, count - len(tried)):
                trial, proposed = None, None
                if stale < STALE_MAX:
                    trial = study.ask()
                    proposed = _proposal(trial, orders)
                    fresh = (
                        _key(proposed) in self._cells and _key(proposed) not in tried
                    )
                    if not fresh:
                        value = self._values.get((_key(proposed), rate))
                        if value is not None:
                            study.tell(trial, value)
                        else:
                            study.tell(trial, state=optuna.trial.TrialState.FAIL)
                        stale += 1
                        continue
                else:
                    left = [c for c in self.combinations if _key(c) not in tried]
                    proposed = chance.choice(left)
                tried[_key(proposed)] = proposed
                batch.append((trial, proposed))
            values = self._try([c for _, c in batch], rate)
            for (trial, proposed), value in zip(batch, values, strict=True):
                if trial is None:
                    if value is not None:
                        study.add_trial(_completed(proposed, orders, value))
                elif value is None:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, value)
        return self._ranked(list(tried.values()), rate)


def _ordered(values: list[Any]) -> tuple[list[Any], bool]:
    """The values, sorted if they are ordered (sizes and numbers are), and whether they are."""
    worth = [number(v) if not str(v).endswith("%") else number(v[:-1]) for v in values]
    if len(values) > 2 and all(w is not None for w in worth):
        pairs = sorted(zip(worth, range(len(values)), strict=True))
        return [values[place] for _, place in pairs], True
    return values, False


def _proposal(trial: Any, orders: dict[str, tuple[list[Any], bool]]) -> Combination:
    return {
        key: values[
            trial.suggest_int(key, 0, len(values) - 1)
            if ordered
            else trial.suggest_categorical(key, list(range(len(values))))
        ]
        for key, (values, ordered) in orders.items()
    }


def _completed(
    combination: Combination,
    orders: dict[str, tuple[list[Any], bool]],
    value: float,
) -> Any:
    """A randomly chosen combination, as a trial from which TPE learns."""
    import optuna

    params, distributions = {}, {}
    for key, (values, ordered) in orders.items():
        params[key] = values.index(combination[key])
        distributions[key] = (
            optuna.distributions.IntDistribution(0, len(values) - 1)
            if ordered
            else optuna.distributions.CategoricalDistribution(range(len(values)))
        )
    return optuna.trial.create_trial(
        params=params, distributions=distributions, value=value
    )


def _key(combination: Combination | None) -> str:
    return json.dumps(combination)
