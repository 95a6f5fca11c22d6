"""Pictures of the trees of `forebay advise`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: The color of branches that the trace takes, and of other branches.
TAKEN, OTHER = "#d62728", "#bbbbbb"


@dataclass
class _Drawn:
    """The positions of the nodes of a tree, and the lines between them."""

    #: x, y, text, hover text, and whether the trace reaches the node.
    nodes: list[tuple[float, float, str, str, bool]] = field(default_factory=list)
    #: The ends of a line, and whether the trace takes it.
    lines: list[tuple[float, float, float, float, bool]] = field(default_factory=list)
    leaves: int = 0


def figure(tree: Mapping[str, Any], features: Mapping[str, float]) -> go.Figure:
    """A figure of a tree with its root on top. A branch goes left if the feature is at most the
    threshold.

    The path of the trace with these features is marked.
    """
    import plotly.graph_objects as go

    drawn = _Drawn()
    _place(tree, features, 0, True, drawn)
    made = go.Figure()
    for taken in (False, True):
        xs: list[float | None] = []
        ys: list[float | None] = []
        for x1, y1, x2, y2, on_way in drawn.lines:
            if on_way == taken:
                xs += [x1, x2, None]
                ys += [y1, y2, None]
        line = {"color": TAKEN if taken else OTHER, "width": 3 if taken else 1}
        made.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip")
    made.add_scatter(
        x=[node[0] for node in drawn.nodes],
        y=[node[1] for node in drawn.nodes],
        text=[node[2] for node in drawn.nodes],
        hovertext=[node[3] for node in drawn.nodes],
        hoverinfo="text",
        mode="markers+text",
        textposition="bottom center",
        textfont={"size": 9},
        marker={
            "color": [TAKEN if node[4] else OTHER for node in drawn.nodes],
            "size": 8,
        },
    )
    deepest = min(node[1] for node in drawn.nodes)
    made.update_layout(
        template="plotly_white",
        showlegend=False,
        height=160 + 110 * -int(deepest),
        margin={"t": 20},
    )
    made.update_xaxes(visible=False)
    made.update_yaxes(visible=False, range=[deepest - 0.6, 0.3])
    return made


def _place(
    node: Mapping[str, Any],
    features: Mapping[str, float],
    depth: int,
    on_way: bool,
    drawn: _Drawn,
) -> float:
    """Places a node above its branches; returns its x."""
    if "feature" not in node:
        counts = node["counts"]
        answer = max(counts, key=lambda name: counts[name])
        each = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        x = float(drawn.leaves)
        drawn.leaves += 1
        said = f"{answer}<br>{counts[answer]} of {sum(counts.values())}"
        drawn.nodes.append((x, -depth, said, f"{each}<br>gain {node['gain']}", on_way))
        return x
    name, threshold = node["feature"], node["threshold"]
    below = features[name] <= threshold
    ends = [
        _place(
            node[side],
            features,
            depth + 1,
            on_way and below == (side == "below"),
            drawn,
        )
        for side in ("below", "above")
    ]
    x = sum(ends) / 2
    for side, end in zip(("below", "above"), ends, strict=True):
        taken = on_way and below == (side == "below")
        drawn.lines.append((x, -depth, end, -depth - 1, taken))
    text = f"{name}<br>≤ {threshold:.3g}"
    drawn.nodes.append((x, -depth, text, f"{name} = {features[name]:.4g}", on_way))
    return x
