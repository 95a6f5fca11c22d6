"""The report of a study: one page, on which each picture names the rows from which it is drawn."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

from forebay.lab.pictures import PARTS_MAX, Picture, Tables, draw, figures
from forebay.lab.progress import counted
from forebay.lab.series import Series
from forebay.lab.spec import StudySpec

#: Largest number of rows in a table of the page.
TABLE_ROWS_MAX = 50

#: The fields in the table of repeats, if the rows have them.
_SPREAD_FIELDS = (
    "hit_ratio",
    "throughput.requests_per_s",
    "latency_us.all.mean",
    "latency_us.all.p99",
    "latency_us.all.p9999",
)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #222 }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }
td, th { padding: .2em .7em; border-bottom: 1px solid #ddd; text-align: left }
.source { color: #666; font-size: 13px } code { background: #f4f4f4 } pre { background: #f4f4f4; padding: 1em; overflow-x: auto }
</style><script>{{ plotly | safe }}</script></head><body>
<h1>{{ title }}</h1>
<p>{{ summary }}</p>
{% for table in tables %}<h2>{{ table.title }}</h2>
<table><tr>{% for name in table.columns %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in table.rows %}<tr>{% for value in row %}<td>{{ value }}</td>{% endfor %}</tr>{% endfor %}</table>
{% if table.left %}<p class="source">and {{ table.left }} more rows</p>{% endif %}{% endfor %}
{% for picture in pictures %}<h2>{{ picture.title }}</h2>
{{ picture.div | safe }}
<p class="source">{{ picture.source }}</p>{% endfor %}
{% if text %}<h2>The study file</h2><pre>{{ text }}</pre>{% endif %}
</body></html>
"""


def write(
    spec: StudySpec,
    directory: Path,
    rows: pl.DataFrame,
    points: pl.DataFrame,
    spread: pl.DataFrame | None,
    found: pl.DataFrame | None,
) -> None:
    """Writes `report.html`."""
    ok = rows.filter(pl.col("status") == "ok") if rows.height else rows
    drawn = Tables(ok, points, Series(directory / "series"))
    pictures = figures(spec, drawn) if ok.height else []
    tables = [_table("Search", found)] if found is not None else []
    if spread is not None:
        tables.append(_spread(spec, spread))
    if rows.height:
        tables += _best(spec, ok) if ok.height else []
        failed = rows.filter(pl.col("status") != "ok")
        if failed.height:
            keys = ["trace", "target", *spec.sweep, "error"]
            tables.append(_table("Failed cells", failed.select(keys)))
        machines = rows.group_by("cell.machine", "forebay.version").len("cells")
        tables.append(_table("Machines and versions", machines))
    summary = f"{rows.height} cells, {rows.height - ok.height} failed. The rows are in "
    summary += "rows.parquet; each point of a picture names its cell."
    page(directory / "report.html", spec.title, summary, tables, pictures, spec.text)


def write_fleet(
    source: str, directory: Path, volumes: pl.DataFrame, curves: pl.DataFrame
) -> None:
    """Writes `report.html` of a fleet."""
    from forebay.representatives import representatives

    ok = volumes.filter(pl.col("status") == "ok")
    pictures, tables = [], []
    if ok.height:
        shown = ok.sort("requests", descending=True).head(PARTS_MAX)
        short = short_names(ok["trace"].unique().to_list())
        label = pl.concat_str(
            pl.col("trace").replace_strict(short), pl.lit("#"), pl.col("volume")
        )
        largest = curves.join(shown.select("cell", "volume"), on=["cell", "volume"])
        largest = largest.with_columns(label.alias("of"))
        curve = {"x": "size_blocks", "y": "miss_ratio", "color": "of", "log": "x"}
        title = f"Curves of the {shown.height} volumes with the most requests"
        curve |= {"kind": "curve", "title": title}
        drawn = Tables(
            ok, largest, Series(directory), "volumes.parquet", "curves.parquet"
        )
        pictures.append(draw(curve, drawn))
        cdf = {"kind": "cdf", "x": "distinct_blocks", "log": "x"}
        cdf["title"] = "Distinct blocks of each volume"
        pictures.append(draw(cdf, drawn))
        if "plan.class" in ok.columns:
            counts = ok.group_by("plan.class").len("volumes").sort("plan.class")
            stores = ", ".join(ok["plan.backing"].drop_nulls().unique().sort())
            title = f"Best purchase for the budget, in front of {stores or 'any store'}"
            tables.append(_table(title, counts))
        features = [c for c in ok.columns if c.startswith("feature.")]
        # Volumes whose features were not computed have none; a feature can be undefined for other
        # volumes.
        whole = ok.filter(pl.any_horizontal(pl.col(features).is_not_null()))
        if whole.height > 2 and features:
            names = whole.with_columns(label.alias("trace")).select("trace", *features)
            groups = representatives(table=names).clusters
            members = [
                {"representative": g.trace, "volumes": len(g.members)} for g in groups
            ]
            tables.append(_table("Groups of similar volumes", pl.DataFrame(members)))
    failed = volumes.filter(pl.col("status") != "ok")
    if failed.height:
        tables.append(_table("Failed files", failed.select("trace", "error")))
    requests = ok["requests"].sum() if ok.height else 0
    summary = (
        f"{counted(ok.height, 'volume')}, {counted(requests, 'request')}, "
        f"{counted(failed.height, 'failed file')}. "
    )
    summary += "The rows are in volumes.parquet, the curves in curves.parquet."
    page(directory / "report.html", f"Fleet {source}", summary, tables, pictures, "")


def short_names(paths: list[str]) -> dict[str, str]:
    """The shortest end of each path that no other path shares.

    >>> short_names(["t/jan/vol0.csv", "t/feb/vol0.csv", "t/web.csv"])
    {'t/jan/vol0.csv': 'jan/vol0.csv', 't/feb/vol0.csv': 'feb/vol0.csv', 't/web.csv': 'web.csv'}
    """
    ends = {path: _ends(path) for path in paths}
    counts = Counter(end for of_path in ends.values() for end in of_path)
    return {
        path: next((end for end in of_path if counts[end] == 1), path)
        for path, of_path in ends.items()
    }


def _ends(path: str) -> list[str]:
    """The last part of a path, the last two, and so on."""
    parts = path.split("/")
    return ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]


def page(
    path: Path,
    title: str,
    summary: str,
    tables: list[Any],
    pictures: list[Picture],
    text: str,
) -> None:
    """Writes a page."""
    import jinja2
    from plotly.offline import get_plotlyjs

    page = jinja2.Environment(autoescape=True).from_string(_PAGE)
    whole = page.render(
        title=title,
        summary=summary,
        tables=tables,
        plotly=get_plotlyjs(),
        pictures=[
            {
                "title": picture.title,
                "div": picture.figure.to_html(full_html=False, include_plotlyjs=False),
                "source": picture.source,
            }
            for picture in pictures
        ],
        text=text,
    )
    partial = path.with_suffix(".partial")
    partial.write_text(whole, encoding="utf-8")
    partial.replace(path)


def _best(spec: StudySpec, rows: pl.DataFrame) -> list[Any]:
    """The best cell of each trace, by the objective or the hit ratio."""
    field, largest = "hit_ratio", True
    if spec.objective is not None:
        field, largest = spec.objective.field, spec.objective.largest
    if field not in rows.columns or not spec.sweep:
        return []
    best = rows.sort(field, descending=largest, nulls_last=True)
    best = (
        best.group_by("trace", "target", maintain_order=True)
        .first()
        .sort("trace", "target")
    )
    chosen = ["trace", "target", *spec.sweep, field, "cell"]
    return [
        _table(
            f"The {'highest' if largest else 'lowest'} {field} of each trace",
            best.select(chosen),
        )
    ]


def _spread(spec: StudySpec, spread: pl.DataFrame) -> dict[str, Any]:
    """The spread over repeats, for the results in which most studies are interested."""
    fields = [*([spec.objective.field] if spec.objective else []), *_SPREAD_FIELDS]
    fields = [f for f in dict.fromkeys(fields) if f"{f}.mean" in spread.columns]

    def said(row: dict[str, Any], field: str) -> str | None:
        mean, std, least, most = (
            row[f"{field}.{part}"] for part in ("mean", "std", "min", "max")
        )
        if mean is None:
            return None
        deviation = "" if std is None else f" ± {std:.3g}"
        return f"{mean:.5g}{deviation} ({least:.5g} to {most:.5g})"

    keys = ["trace", "target", *spec.sweep, "repeats"]
    rows = [
        {**{key: row[key] for key in keys}, **{f: said(row, f) for f in fields}}
        for row in spread.to_dicts()
    ]
    title = (
        "Repeats: mean ± standard deviation (minimum to maximum), from repeats.parquet"
    )
    return _table(title, pl.DataFrame(rows, infer_schema_length=None))


def _table(title: str, frame: pl.DataFrame) -> dict[str, Any]:
    rows = [
        [f"{v:.5g}" if isinstance(v, float) else "" if v is None else v for v in row]
        for row in frame.head(TABLE_ROWS_MAX).rows()
    ]
    left = max(0, frame.height - TABLE_ROWS_MAX)
    return {"title": title, "columns": frame.columns, "rows": rows, "left": left}
