"""The report of a study: one page, each picture with the rows that it is drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay._run import ForebayError
from forebay.lab.spec import StudySpec
from forebay.lab.values import Constraint, number, share

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Rows of a table of the page.
TABLE_ROWS_MAX = 50
#: Bars, lines or panels of one picture.
PARTS_MAX = 24
TAIL = ("p50", "p99", "p999", "p9999")

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


@dataclass(frozen=True)
class Picture:
    """A figure and where it comes from."""

    title: str
    figure: go.Figure
    source: str


def write(
    spec: StudySpec,
    directory: Path,
    rows: pl.DataFrame,
    points: pl.DataFrame,
    found: pl.DataFrame | None,
) -> None:
    """Writes `report.html`."""
    ok = rows.filter(pl.col("status") == "ok") if rows.height else rows
    pictures = figures(spec, ok, points) if ok.height else []
    tables = [_table("Search", found)] if found is not None else []
    if rows.height:
        tables += _best(spec, ok) if ok.height else []
        failed = rows.filter(pl.col("status") != "ok")
        if failed.height:
            keys = ["trace", "target", *spec.sweep, "error"]
            tables.append(_table("Failed cells", failed.select(keys)))
        machines = rows.group_by("cell.machine", "forebay.version").len("cells")
        tables.append(_table("Where the rows come from", machines))
    summary = f"{rows.height} cells, {rows.height - ok.height} failed. The rows are in "
    summary += "rows.parquet; a point of a picture shows its cell."
    _write(directory, spec.title, summary, tables, pictures, spec.text)


def write_fleet(
    source: str, directory: Path, volumes: pl.DataFrame, curves: pl.DataFrame
) -> None:
    """Writes `report.html` of a fleet."""
    from forebay.representatives import representatives

    ok = volumes.filter(pl.col("status") == "ok")
    pictures, tables = [], []
    if ok.height:
        shown = ok.sort("requests", descending=True).head(PARTS_MAX)
        label = pl.concat_str(
            pl.col("trace").str.split("/").list.last(), pl.lit("#"), pl.col("volume")
        )
        largest = curves.join(shown.select("cell", "volume"), on=["cell", "volume"])
        largest = largest.with_columns(label.alias("of"))
        curve = {"x": "size_blocks", "y": "miss_ratio", "color": "of", "log": "x"}
        title = f"Curves of the {shown.height} volumes with most requests"
        curve |= {"kind": "curve", "title": title}
        pictures.append(_draw(curve, ok, largest, "curves.parquet"))
        cdf = {"kind": "cdf", "x": "distinct_blocks", "log": "x"}
        cdf["title"] = "Distinct blocks of each volume"
        pictures.append(_draw(cdf, ok, curves, "volumes.parquet"))
        if "plan.class" in ok.columns:
            counts = ok.group_by("plan.class").len("volumes").sort("plan.class")
            tables.append(_table("What the budget buys best", counts))
        features = [c for c in ok.columns if c.startswith("feature.")]
        whole = ok.filter(pl.all_horizontal(pl.col(features).is_not_null().any()))
        if whole.height > 2 and features:
            names = whole.with_columns(label.alias("trace")).select("trace", *features)
            groups = representatives(table=names).clusters
            counted = [
                {"stands for": len(g.members), "volume": g.trace} for g in groups
            ]
            tables.append(_table("Groups that are alike", pl.DataFrame(counted)))
    failed = volumes.filter(pl.col("status") != "ok")
    if failed.height:
        tables.append(_table("Failed files", failed.select("trace", "error")))
    requests = ok["requests"].sum() if ok.height else 0
    summary = (
        f"{ok.height} volumes, {requests} requests, {failed.height} failed files. "
    )
    summary += "The rows are in volumes.parquet, the curves in curves.parquet."
    _write(directory, f"Fleet {source}", summary, tables, pictures, "")


def _write(
    directory: Path,
    title: str,
    summary: str,
    tables: list[Any],
    pictures: list[Picture],
    text: str,
) -> None:
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
    partial = directory / "report.partial"
    partial.write_text(whole, encoding="utf-8")
    partial.replace(directory / "report.html")


def figures(spec: StudySpec, rows: pl.DataFrame, points: pl.DataFrame) -> list[Picture]:
    """The pictures that the study file asks for, or those that suit its rows."""
    wanted = spec.figures or _suitable(spec, rows, points)
    made = []
    for figure in wanted:
        try:
            made.append(_draw(dict(figure), rows, points))
        except ForebayError:
            if spec.figures:
                raise
    return made


def _suitable(
    spec: StudySpec, rows: pl.DataFrame, points: pl.DataFrame
) -> list[dict[str, Any]]:
    chosen: list[dict[str, Any]] = []
    many = rows["trace"].n_unique() > 1
    numbers = [key for key, values in spec.sweep.items() if _is_axis(values)]
    others = [key for key in spec.sweep if key not in numbers]
    x = numbers[0] if numbers else (others[0] if others else "trace")
    kind = "line" if numbers else "bar"
    rest = [key for key in numbers[1:] + others if key != x]
    parts = {"color": rest[0] if rest else "trace"}
    if many and rest:
        parts["facet"] = "trace"
    for y in ("hit_ratio", "throughput.requests_per_s", "latency_us.all.mean"):
        if y in rows.columns and rows[y].drop_nulls().len():
            chosen.append({"kind": kind, "x": x, "y": y, **parts})
    if (
        "latency_us.all.p99" in rows.columns
        and rows["latency_us.all.p99"].is_not_null().any()
    ):
        chosen.append({"kind": "tail", "y": "latency_us.all"})
    if rest and "hit_ratio" in rows.columns:
        heat = {"kind": "heatmap", "x": x, "y": rest[0], "z": "hit_ratio"}
        chosen.append({**heat, **({"facet": "trace"} if many else {})})
    if spec.repeats > 1 and "latency_us.all.mean" in rows.columns:
        chosen.append({"kind": "violin", "x": x, "y": "latency_us.all.mean"})
    if "miss_ratio" in points.columns:
        color = next(iter(spec.sweep), "trace")
        color = "curve" if "curve" in points.columns else color
        curve = {"kind": "curve", "x": "size_bytes", "y": "miss_ratio", "log": "x"}
        chosen.append({**curve, "color": color, **({"facet": "trace"} if many else {})})
    if "choices.0.class" in rows.columns:
        chosen.append({"kind": "area", "x": x, "color": "choices.0.class"})
        chosen.append({"kind": "cdf", "x": "choices.0.mean_latency_us"})
    return chosen


def _draw(
    figure: dict[str, Any],
    rows: pl.DataFrame,
    points: pl.DataFrame,
    table: str | None = None,
) -> Picture:
    kind = figure.get("kind", "line")
    draw = _KINDS.get(kind)
    if draw is None:
        raise ForebayError(f"figure: {kind!r} is none of {', '.join(_KINDS)}", 2)
    source = points if kind == "curve" else rows
    where = figure.get("where")
    if where:
        condition = Constraint(where)
        keep = [condition.holds(row) for row in source.to_dicts()]
        source = source.filter(pl.Series(keep, dtype=pl.Boolean))
    for axis in ("x", "y", "z", "color", "facet"):
        name = figure.get(axis)
        if name and name not in source.columns and not (kind == "tail" and axis == "y"):
            raise ForebayError(f"figure: rows have no column `{name}`", 2)
    made = draw(figure, source)
    made.update_layout(template="plotly_white", margin={"t": 40})
    named = [
        figure[axis] for axis in ("x", "y", "z", "color", "facet") if axis in figure
    ]
    table = table or ("points.parquet" if kind == "curve" else "rows.parquet")
    text = f"{source.height} rows of {table}"
    text += f" where {where}" if where else ""
    text += f"; columns {', '.join(named)}" if named else ""
    title = (
        figure.get("title")
        or f"{figure.get('z') or figure.get('y') or figure.get('color') or figure['x']} by {figure.get('x', 'cell')}"
    )
    return Picture(title, made, text)


def _prepared(
    figure: dict[str, Any], rows: pl.DataFrame, y: str | None
) -> tuple[pl.DataFrame, bool]:
    """Rows in the order of x, and whether x is a number."""
    x = figure["x"]
    values = rows[x].to_list()
    worth = [_worth(value) for value in values]
    is_number = all(w is not None for w in worth) and bool(worth)
    made = rows.with_columns(
        pl.Series("_x", worth if is_number else [str(v) for v in values])
    )
    columns = [
        "_x",
        "cell",
        *({v for v in (y, figure.get("color"), figure.get("facet")) if v}),
    ]
    made = made.select(*dict.fromkeys(columns))
    for part in ("color", "facet"):
        if figure.get(part):
            made = made.with_columns(pl.col(figure[part]).cast(pl.String))
    for part in ("facet", "color"):
        if figure.get(part):
            kept = made[figure[part]].unique(maintain_order=True).to_list()[:PARTS_MAX]
            made = made.filter(pl.col(figure[part]).is_in(kept))
    return (made.sort("_x") if is_number else made), is_number


def _plain(kind: str, figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    import plotly.express as px

    y = figure["y"]
    data, is_number = _prepared(figure, rows, y)
    log = figure.get("log", "")
    options: dict[str, Any] = {
        "x": "_x",
        "y": y,
        "color": figure.get("color"),
        "facet_col": figure.get("facet"),
        "facet_col_wrap": 3,
        "hover_data": ["cell"],
        "labels": {"_x": figure["x"]},
        "log_y": "y" in log,
    }
    if kind == "bar":
        made = px.bar(data, barmode="group", **options)
    elif kind == "violin":
        del options["facet_col_wrap"]
        made = px.violin(data, box=True, points="all", **options)
    else:
        wide = is_number and data["_x"].max() > 50 * max(data["_x"].min(), 1e-9)
        made = px.line(
            data, markers=kind == "line", log_x="x" in log or wide, **options
        )
    made.for_each_annotation(
        lambda a: a.update(text=Path(a.text.split("=", 1)[-1]).name)
    )
    return made


def _tail(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Bars of percentiles, a group for each cell."""
    import plotly.graph_objects as go

    base = figure.get("y", "latency_us.all")
    if f"{base}.p99" not in rows.columns:
        raise ForebayError(f"figure: rows have no columns `{base}.p99` and the like", 2)
    rows = rows.head(PARTS_MAX)
    first = rows.columns.index("repeat") + 1
    keys = rows.columns[first : rows.columns.index("status")]
    names = [
        ", ".join([Path(row["trace"]).name, *(str(row[key]) for key in keys)])
        for row in rows.to_dicts()
    ]
    made = go.Figure(
        [
            go.Bar(
                x=names,
                y=rows[f"{base}.{p}"],
                name=p,
                customdata=rows["cell"],
                hovertemplate="%{y} µs<br>%{customdata}",
            )
            for p in TAIL
            if f"{base}.{p}" in rows.columns
        ]
    )
    made.update_yaxes(type="log", title="µs")
    return made


def _heatmap(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    x, y, z = figure["x"], figure["y"], figure["z"]
    facet = figure.get("facet")
    parts = (
        rows[facet].unique(maintain_order=True).to_list()[:PARTS_MAX]
        if facet
        else [None]
    )
    made = make_subplots(
        1,
        len(parts),
        subplot_titles=[Path(str(p)).name for p in parts] if facet else None,
    )
    for column, part in enumerate(parts, 1):
        own = rows if part is None else rows.filter(pl.col(facet) == part)
        means = own.group_by(x, y).agg(pl.col(z).mean())
        xs, ys = _in_order(means[x]), _in_order(means[y])
        table = {(a, b): value for a, b, value in means.rows()}
        made.add_trace(
            go.Heatmap(
                x=[str(v) for v in xs],
                y=[str(v) for v in ys],
                z=[[table.get((a, b)) for a in xs] for b in ys],
                coloraxis="coloraxis",
            ),
            1,
            column,
        )
        made.update_xaxes(title=x, type="category", row=1, col=column)
    made.update_yaxes(title=y, type="category", col=1)
    made.update_layout(coloraxis={"colorscale": "Viridis", "colorbar": {"title": z}})
    return made


def _cdf(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    import plotly.express as px

    kept = rows.filter(pl.col(figure["x"]).is_not_null())
    return px.ecdf(
        kept,
        x=figure["x"],
        color=figure.get("color"),
        log_x="x" in figure.get("log", ""),
    )


def _area(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Shares of the values of a column, stacked over x: which kind of cache wins."""
    import plotly.graph_objects as go

    x, color = figure["x"], figure["color"]
    counts = rows.group_by(x, color).len()
    xs = _in_order(counts[x])
    totals = dict(counts.group_by(x).agg(pl.col("len").sum()).rows())
    table = {(a, b): n for a, b, n in counts.rows()}
    return go.Figure(
        [
            go.Scatter(
                x=[str(v) for v in xs],
                y=[table.get((a, part), 0) / totals[a] for a in xs],
                name=str(part),
                stackgroup="all",
            )
            for part in _in_order(counts[color])
        ]
    ).update_layout(
        xaxis={"title": x, "type": "category"}, yaxis={"title": "share of cells"}
    )


_KINDS = {
    "line": lambda figure, rows: _plain("line", figure, rows),
    "curve": lambda figure, rows: _plain("curve", figure, rows),
    "bar": lambda figure, rows: _plain("bar", figure, rows),
    "violin": lambda figure, rows: _plain("violin", figure, rows),
    "tail": _tail,
    "heatmap": _heatmap,
    "cdf": _cdf,
    "area": _area,
}


def _best(spec: StudySpec, rows: pl.DataFrame) -> list[Any]:
    """The best cells of each trace, by the objective or the hit ratio."""
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


def _table(title: str, frame: pl.DataFrame) -> dict[str, Any]:
    rows = [
        [f"{v:.5g}" if isinstance(v, float) else "" if v is None else v for v in row]
        for row in frame.head(TABLE_ROWS_MAX).rows()
    ]
    left = max(0, frame.height - TABLE_ROWS_MAX)
    return {"title": title, "columns": frame.columns, "rows": rows, "left": left}


def _is_axis(values: list[Any]) -> bool:
    return len(values) > 1 and all(_worth(value) is not None for value in values)


def _worth(value: Any) -> float | None:
    fraction = share(value)
    return number(value) if fraction is None else fraction


def _in_order(values: pl.Series) -> list[Any]:
    unique = values.unique(maintain_order=True).to_list()
    if all(_worth(value) is not None for value in unique):
        return sorted(unique, key=lambda value: _worth(value) or 0)
    return sorted(unique, key=str)
