"""Representative traces: a few traces that stand for many (Bhandari 2024, section 4.3).

Each trace is a point in the space of its features. Features that span orders of magnitude are replaced
by their logarithms, all features are scaled to unit variance, and principal components reduce them to ten
dimensions. (The paper trains an autoencoder for this step; a few dozen traces are too few to train one.)
Ward's hierarchical clustering then finds groups, the elbow of the variance within groups determines the
number of groups, and the trace nearest to the centre of a group represents the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from forebay._run import ForebayError, PathLike, reason
from forebay.frames import features

# Plotly and scikit-learn are imported where they are used: the workers of a study, which also
# import this package, then start two seconds sooner.
if TYPE_CHECKING:
    import plotly.graph_objects as go


@dataclass(frozen=True)
class Cluster:
    """A group of traces."""

    #: The trace nearest to the centre of the group.
    trace: str
    #: All traces of the group, including that one; the trace nearest to the centre comes first.
    members: list[str]


@dataclass(frozen=True)
class Representatives:
    """The groups, and the data from which they were formed."""

    #: The groups, largest first.
    clusters: list[Cluster]
    #: The feature table: a row for each trace.
    features: pl.DataFrame
    #: The coordinates of each trace: ``trace``, ``cluster`` (its index in ``clusters``), then a
    #: column for each dimension, ``d1`` and so on, in standard deviations of features.
    points: pl.DataFrame
    #: Variance within groups, by the number of groups: ``clusters``, ``within`` (1 for a single
    #: group).
    elbow: pl.DataFrame

    def document(self) -> dict[str, Any]:
        """The document that ``forebay representatives --json`` prints."""
        return {
            "clusters": [
                {"trace": c.trace, "members": c.members} for c in self.clusters
            ],
            "elbow": self.elbow.to_dicts(),
            "points": self.points.to_dicts(),
            "dimensions": self.points.width - 2,
            "features": self.features.width - 1,
        }

    def figure(self) -> go.Figure:
        """A figure of the traces in their first two dimensions, and of the elbow."""
        from plotly.subplots import make_subplots

        figure = make_subplots(
            1, 2, subplot_titles=("Traces", "Variance within groups")
        )
        chosen = {cluster.trace for cluster in self.clusters}
        second = "d2" if "d2" in self.points.columns else "d1"
        for at, cluster in enumerate(self.clusters):
            own = self.points.filter(pl.col("cluster") == at)
            names = own["trace"].to_list()
            marks = ["star" if name in chosen else "circle" for name in names]
            figure.add_scatter(
                x=own["d1"].to_list(),
                y=own[second].to_list(),
                mode="markers",
                marker={"size": 11, "symbol": marks},
                text=names,
                name=cluster.trace,
                row=1,
                col=1,
            )
        figure.add_scatter(
            x=self.elbow["clusters"].to_list(),
            y=self.elbow["within"].to_list(),
            mode="lines+markers",
            name="within groups",
            showlegend=False,
            row=1,
            col=2,
        )
        figure.update_xaxes(title_text="first dimension", row=1, col=1)
        figure.update_yaxes(title_text="second dimension", row=1, col=1)
        figure.update_xaxes(title_text="groups", row=1, col=2)
        figure.update_yaxes(title_text="share of the total variance", row=1, col=2)
        return figure


def representatives(
    *traces: PathLike,
    table: PathLike | pl.DataFrame | None = None,
    clusters: int | None = None,
    dimensions: int = 10,
    **options: Any,
) -> Representatives:
    """Groups traces by their features, and names a representative of each group.

    Args:
        traces: Two or more trace files.
        table: A table of features instead of traces, with a row for each trace: a data frame, or a CSV or
            Parquet file, such as ``forebay.features`` returns or ``--parquet`` writes. Its first text column
            names the traces; without a text column, each trace is named by its row number, from 1.
        clusters: Number of groups; by default, the number at the elbow.
        dimensions: Maximum number of dimensions to keep.
        options: Options of ``forebay trace info``, such as ``limit``.

    Raises:
        ForebayError: A trace cannot be read, or there are fewer traces than requested groups.

    >>> found = representatives(*TRACES)
    >>> len(found.clusters), [len(c.members) for c in found.clusters]
    (3, [2, 2, 2])
    """
    if table is not None and (traces or options):
        raise ForebayError("give traces or a table of features, not both", 2)
    if table is not None:
        table = _table(table)
    count = len(traces) if table is None else table.height
    if count < 2:
        raise ForebayError("give at least two traces", 2)
    if clusters is not None and not 1 <= clusters <= count:
        raise ForebayError(f"cannot form {clusters} groups from {count} traces", 2)
    if dimensions < 1:
        raise ForebayError(f"cannot keep {dimensions} dimensions: keep 1 or more", 2)
    if table is None:
        table = features(*traces, **options)
    names = table["trace"].to_list()
    points = _reduced(table.drop("trace").to_numpy(), dimensions)
    within = [_within(points, _labels(points, k)) for k in range(1, table.height + 1)]
    scale = within[0] or 1.0
    count = clusters or _elbow(within)
    groups = _groups(names, points, _labels(points, count))
    place = {name: at for at, group in enumerate(groups) for name in group.members}
    columns = {f"d{n + 1}": points[:, n] for n in range(points.shape[1])}
    return Representatives(
        clusters=groups,
        features=table,
        points=pl.DataFrame(
            {"trace": names, "cluster": [place[name] for name in names], **columns}
        ),
        elbow=pl.DataFrame(
            {
                "clusters": list(range(1, len(within) + 1)),
                "within": [w / scale for w in within],
            }
        ),
    )


def _table(source: PathLike | pl.DataFrame) -> pl.DataFrame:
    """A table of numbers, except for a column ``trace`` with the names of the traces.

    >>> _table(pl.DataFrame({"wss": [1, 2], "workload": ["a", "b"]})).columns
    ['trace', 'wss']
    >>> _table(pl.DataFrame({"wss": [1, 2]}))["trace"].to_list()
    ['1', '2']
    >>> nothing = pl.Series([None, None], dtype=pl.String)
    >>> _table(pl.DataFrame({"trace": ["a", "b"], "iat_avg": nothing}))["iat_avg"].dtype
    Float64
    """
    if not isinstance(source, pl.DataFrame):
        path = Path(source)
        try:
            is_parquet = path.open("rb").read(4) == b"PAR1"
            # Read all rows to infer types, because the first fraction in a column may come late.
            read = pl.read_parquet if is_parquet else _read_csv
            source = read(path)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise ForebayError(f"cannot read {path}: {reason(error)}", 1) from error
    # In a CSV file, a feature that no trace has is read as text.
    texts = [
        name
        for name, kind in source.schema.items()
        if kind == pl.String and source[name].null_count() < source.height
    ]
    if texts:
        names = source[texts[0]].cast(pl.String)
    else:
        names = pl.Series([str(row + 1) for row in range(source.height)])
    if len(texts) > 1:
        shown = ", ".join(texts[1:4])
        raise ForebayError(f"features must be numbers, but {shown} are not", 2)
    numbers = source.drop(texts).cast(pl.Float64)
    return numbers.insert_column(0, names.rename("trace"))


def _read_csv(path: Path) -> pl.DataFrame:
    return pl.read_csv(path, infer_schema_length=None)


def _reduced(values: np.ndarray, dimensions: int) -> np.ndarray:
    """Projects the values to at most `dimensions` dimensions: shape (traces, dimensions)."""
    # A feature that a trace lacks (such as the jump distances of a single request) counts as 0.
    values = np.nan_to_num(np.asarray(values, dtype=float), nan=0.0)
    values = np.sign(values) * np.log1p(np.abs(values))
    varying = values[:, np.ptp(values, axis=0) > 0]
    if varying.shape[1] == 0:
        return np.zeros((len(values), 1))
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    scaled = StandardScaler().fit_transform(varying)
    most = min(dimensions, len(values) - 1, varying.shape[1])
    return PCA(n_components=most, svd_solver="full").fit_transform(scaled)


def _labels(points: np.ndarray, count: int) -> np.ndarray:
    if count == 1:
        return np.zeros(len(points), dtype=int)
    from sklearn.cluster import AgglomerativeClustering

    return AgglomerativeClustering(n_clusters=count, linkage="ward").fit_predict(points)


def _within(points: np.ndarray, labels: np.ndarray) -> float:
    """Sum of squared distances from the centres of the groups."""
    own = (points[labels == label] for label in np.unique(labels))
    return float(sum(((p - p.mean(axis=0)) ** 2).sum() for p in own))


def _elbow(within: Sequence[float]) -> int:
    """The number of groups farthest below the line from one group to one for each trace.

    >>> _elbow([10.0, 5.0, 0.4, 0.3, 0.1, 0.0])
    3
    >>> _elbow([0.0, 0.0])
    1
    """
    line = np.linspace(within[0], within[-1], len(within))
    return int(np.argmax(line - np.asarray(within))) + 1


def _groups(names: list[str], points: np.ndarray, labels: np.ndarray) -> list[Cluster]:
    groups = []
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        centre = points[own].mean(axis=0)
        nearest = own[
            np.argsort(((points[own] - centre) ** 2).sum(axis=1), kind="stable")
        ]
        members = [names[n] for n in nearest]
        groups.append(Cluster(trace=members[0], members=members))
    return sorted(groups, key=lambda group: (-len(group.members), group.trace))
