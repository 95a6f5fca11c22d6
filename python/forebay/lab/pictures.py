"""The pictures of a study; each names the rows from which it is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from forebay._run import ForebayError
from forebay.lab import series as series_of
from forebay.lab.rows import over_repeats, swept_keys
from forebay.lab.series import Series
from forebay.lab.spec import StudySpec
from forebay.lab.values import Constraint, number, share

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: Largest number of bars, lines or panels in one picture.
PARTS_MAX = 24
TAIL = ("p50", "p99", "p999", "p9999")


@dataclass(frozen=True)
class Picture:
    """A figure and its source."""

    title: str
    figure: go.Figure
    source: str


@dataclass(frozen=True)
class Tables:
    """The tables from which pictures are drawn."""

    #: The rows of the cells that succeeded.
    rows: pl.DataFrame
    #: The points of curves.
    points: pl.DataFrame
    #: The intervals of the cells.
    series: Series
    rows_name: str = "rows.parquet"
    points_name: str = "points.parquet"


def figures(spec: StudySpec, tables: Tables) -> list[Picture]:
    """The pictures that the study file requests, or by default those that suit its rows."""
    wanted = spec.figures or _suitable(spec, tables)
    made = []
    for figure in wanted:
        try:
            made.append(draw(dict(figure), tables))
        except ForebayError:
            if spec.figures:
                raise
    return made


def _suitable(spec: StudySpec, tables: Tables) -> list[dict[str, Any]]:
    rows = tables.rows
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
    if "miss_ratio" in tables.points.columns:
        color = next(iter(spec.sweep), "trace")
        color = "curve" if "curve" in tables.points.columns else color
        curve = {"kind": "curve", "x": "size_bytes", "y": "miss_ratio", "log": "x"}
        chosen.append({**curve, "color": color, **({"facet": "trace"} if many else {})})
    if "choices.0.class" in rows.columns:
        chosen.append({"kind": "area", "x": x, "color": "choices.0.class"})
        chosen.append({"kind": "cdf", "x": "choices.0.mean_latency_us"})
    if spec.series:
        facet = {"facet": "trace"} if many else {}
        for y in ("requests_per_s", "dirty_blocks", "miss_ratio"):
            chosen.append({"kind": "series", "y": y, **facet})
        chosen.append({"kind": "series", "y": "miss_ratio", "every": "1h", **facet})
    return chosen


def draw(figure: dict[str, Any], tables: Tables) -> Picture:
    """Draws one picture.

    Raises:
        ForebayError: There is no such kind or column, or nothing to draw.
    """
    kind = figure.get("kind", "line")
    if kind != "series" and kind not in _KINDS:
        names = ", ".join([*_KINDS, "series"])
        raise ForebayError(f"figure: {kind!r} is not one of {names}", 2)
    source = tables.points if kind == "curve" else tables.rows
    where = figure.get("where")
    if where:
        condition = Constraint(where)
        keep = [condition.holds(row) for row in source.to_dicts()]
        source = source.filter(pl.Series(keep, dtype=pl.Boolean))
    for needed in _NEEDED.get(kind, ()):
        if needed not in figure:
            raise ForebayError(f"figure: a {kind} requires {needed}", 2)
    for name in _columns(figure):
        elsewhere = name == figure.get("y") and kind in ("tail", "series")
        if name not in source.columns and not elsewhere:
            raise ForebayError(f"figure: rows have no column `{name}`", 2)
    if kind == "series":
        made, text = _series(figure, source, tables.series)
    else:
        made = _KINDS[kind](figure, source)
        table = tables.points_name if kind == "curve" else tables.rows_name
        text = f"{source.height} rows of {table}"
    made.update_layout(template="plotly_white", margin={"t": 40})
    named = _columns(figure)
    text += f" where {where}" if where else ""
    text += f"; columns {', '.join(named)}" if named else ""
    return Picture(figure.get("title") or _title(figure), made, text)


def _columns(figure: dict[str, Any]) -> list[str]:
    """The columns that a figure names."""
    named = [
        figure[axis] for axis in ("x", "y", "z", "color", "facet") if axis in figure
    ]
    return [name for one in named for name in (one if isinstance(one, list) else [one])]


def _title(figure: dict[str, Any]) -> str:
    what = figure.get("z") or figure.get("y") or figure.get("color") or figure["x"]
    if isinstance(what, list):
        what = ", ".join(what)
    if figure.get("kind") == "series":
        every = figure.get("every")
        return f"{what} over time" + (f", by intervals of {every}" if every else "")
    return f"{what} by {figure.get('x', 'cell')}"


def _series(
    figure: dict[str, Any], rows: pl.DataFrame, series: Series
) -> tuple[go.Figure, str]:
    """Draws a column of the intervals over time, with a line for each cell."""
    import plotly.express as px

    y, color, facet = figure.get("y"), figure.get("color"), figure.get("facet")
    if y not in series_of.COLUMNS:
        names = ", ".join(series_of.COLUMNS)
        raise ForebayError(f"figure: y of a series must be one of {names}, not {y}", 2)
    every = number(figure["every"]) if "every" in figure else None
    if "every" in figure and not (every and every > 0):
        raise ForebayError('figure: every must be a time such as "1h"', 2)
    panels = rows[facet].n_unique() if facet and rows.height else 1
    most = max(1, PARTS_MAX // max(1, panels))
    shown = rows.group_by(facet, maintain_order=True).head(most) if facet else rows
    shown = shown.head(PARTS_MAX)
    names = pl.Series("run", _run_names(shown, [] if facet is None else [facet]))
    columns = dict.fromkeys(["cell", *(c for c in (color, facet) if c)])
    own = shown.select(*columns).with_columns(names)
    data = series.of(shown["cell"].to_list(), every).join(own, on="cell")
    data = data.filter(pl.col(y).is_not_null())
    if every is not None and data.height and data["end_s"].max() <= 2 * every:
        raise ForebayError(f"figure: no run takes longer than 2 x {figure['every']}", 2)
    if not data.height or (y == "dirty_blocks" and data[y].max() == 0):
        raise ForebayError(f"figure: no series has {y}", 2)
    unit, length = _time_unit(data["end_s"].max())
    middle = (pl.col("start_s") + pl.col("end_s")) / 2 / length
    data = data.with_columns(middle.alias("_time"))
    made = px.line(
        data,
        x="_time",
        y=y,
        color=color or "run",
        line_group="cell",
        facet_col=facet,
        facet_col_wrap=3,
        hover_data=["cell", "run"],
        labels={"_time": f"time, {unit}"},
        log_y="y" in figure.get("log", ""),
    )
    _short_panels(made)
    drawn = data["cell"].n_unique()
    text = f"{data.height} intervals of {drawn} of {rows.height} cells, series/CELL.parquet"
    return made, text


def _run_names(rows: pl.DataFrame, without: list[str]) -> list[str]:
    """Names of runs, made of the values in which the cells differ."""
    keys = [k for k in ["trace", "target", *swept_keys(rows), "repeat"]]
    keys = [k for k in keys if k not in without and rows[k].n_unique() > 1]
    return [
        ", ".join(Path(str(row[key])).name for key in keys) or row["cell"]
        for row in rows.to_dicts()
    ]


def _time_unit(longest_s: float) -> tuple[str, float]:
    """The unit for times up to this one, and its length in seconds.

    >>> _time_unit(90), _time_unit(7200), _time_unit(30000)
    (('s', 1.0), ('min', 60.0), ('h', 3600.0))
    """
    if longest_s > 4 * 3600:
        return "h", 3600.0
    return ("min", 60.0) if longest_s > 600 else ("s", 1.0)


def _short_panels(figure: go.Figure) -> None:
    """Shortens the headings of panels to the value, and a path to its file name."""
    figure.for_each_annotation(
        lambda a: a.update(text=Path(a.text.split("=", 1)[-1]).name)
    )


def _prepared(
    figure: dict[str, Any], rows: pl.DataFrame, y: str | None
) -> tuple[pl.DataFrame, bool]:
    """The rows in the order of x, and whether x is a number."""
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
        *([f"{y}.std"] if f"{y}.std" in rows.columns else []),
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
    if kind in ("line", "bar"):
        rows = over_repeats(rows, [y])
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
    if f"{y}.std" in data.columns:
        options["error_y"] = f"{y}.std"
    if kind == "bar":
        made = px.bar(data, barmode="group", **options)
    elif kind == "box":
        made = px.box(data, **options)
    elif kind == "violin":
        del options["facet_col_wrap"]
        made = px.violin(data, box=True, points="all", **options)
    else:
        wide = is_number and data["_x"].max() > 50 * max(data["_x"].min(), 1e-9)
        made = px.line(
            data, markers=kind == "line", log_x="x" in log or wide, **options
        )
    _short_panels(made)
    return made


def _tail(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Draws bars of percentiles, with a group for each cell."""
    import plotly.graph_objects as go

    base = figure.get("y", "latency_us.all")
    if f"{base}.p99" not in rows.columns:
        raise ForebayError(f"figure: rows have no columns such as `{base}.p99`", 2)
    percentiles = [p for p in TAIL if f"{base}.{p}" in rows.columns]
    rows = over_repeats(rows, [f"{base}.{p}" for p in percentiles]).head(PARTS_MAX)
    keys = swept_keys(rows)
    names = [
        ", ".join([Path(row["trace"]).name, *(str(row[key]) for key in keys)])
        for row in rows.to_dicts()
    ]

    def spread(percentile: str) -> dict[str, Any] | None:
        name = f"{base}.{percentile}.std"
        return {"array": rows[name]} if name in rows.columns else None

    made = go.Figure(
        [
            go.Bar(
                x=names,
                y=rows[f"{base}.{p}"],
                name=p,
                error_y=spread(p),
                customdata=rows["cell"],
                hovertemplate="%{y} µs<br>%{customdata}",
            )
            for p in percentiles
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


def _scatter(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Draws a point for each row. Sizes are placed by their values, and numbers are colored by a
    scale.
    """
    import plotly.express as px

    axes, log = [figure["x"], figure["y"]], figure.get("log", "")
    data = rows.select(*dict.fromkeys(["cell", *_columns(figure)]))
    for name in axes:
        worth = [_worth(value) for value in data[name]]
        if None not in worth:
            data = data.with_columns(pl.Series(name, worth))
    made = px.scatter(
        data,
        x=axes[0],
        y=axes[1],
        color=figure.get("color"),
        facet_col=figure.get("facet"),
        facet_col_wrap=3,
        hover_data=["cell"],
        log_x="x" in log,
        log_y="y" in log,
    )
    _short_panels(made)
    return made


def _histogram(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Draws the distribution of a column over the rows."""
    import plotly.express as px

    made = px.histogram(
        rows.filter(pl.col(figure["x"]).is_not_null()),
        x=figure["x"],
        color=figure.get("color"),
        facet_col=figure.get("facet"),
        facet_col_wrap=3,
        barmode="overlay",
        opacity=0.7,
    )
    _short_panels(made)
    return made


def _stack(figure: dict[str, Any], rows: pl.DataFrame) -> go.Figure:
    """Draws stacked bars of several columns, such as hits by tier: the means of the rows with the
    same x.
    """
    import plotly.express as px

    x, facet = figure["x"], figure.get("facet")
    parts = figure["y"] if isinstance(figure["y"], list) else [figure["y"]]
    by = [x, *([facet] if facet else [])]
    means = rows.group_by(by, maintain_order=True).agg(
        *(pl.col(part).fill_null(0).mean() for part in parts)
    )
    if figure.get("share"):
        whole = pl.sum_horizontal(parts)
        means = means.with_columns(
            *(
                pl.when(whole > 0).then(pl.col(part) / whole).alias(part)
                for part in parts
            )
        )
    made = px.bar(
        means.with_columns(pl.col(x).cast(pl.String)),
        x=x,
        y=parts,
        facet_col=facet,
        facet_col_wrap=3,
        barmode="stack",
        category_orders={x: [str(value) for value in _in_order(means[x])]},
        labels={"value": "share" if figure.get("share") else "", "variable": ""},
    )
    made.update_xaxes(type="category")
    _short_panels(made)
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
    """Draws the shares of a column's values, stacked over x: which kind of cache wins."""
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
    "box": lambda figure, rows: _plain("box", figure, rows),
    "scatter": _scatter,
    "histogram": _histogram,
    "stack": _stack,
    "tail": _tail,
    "heatmap": _heatmap,
    "cdf": _cdf,
    "area": _area,
}

#: The keys that a figure of each kind requires.
_NEEDED = {
    **dict.fromkeys(
        ("line", "curve", "bar", "violin", "box", "scatter", "stack"), ("x", "y")
    ),
    "heatmap": ("x", "y", "z"),
    "histogram": ("x",),
    "cdf": ("x",),
    "area": ("x", "color"),
    "series": ("y",),
}


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
