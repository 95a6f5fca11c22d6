"""The figures of the command's HTML pages, as Plotly figures."""

from __future__ import annotations

import json
import os
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


class _Figures(HTMLParser):
    """Collects the JSON of the figures in a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script" and "data-figure" in dict(attrs)
        if self._inside:
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.found[-1] += data


def figures(page: str | os.PathLike[str]) -> list[go.Figure]:
    """The figures of a page that the command wrote with ``--html``, in the order of the page.

    They are the figures that the page shows; you can change them, combine them or write them as images.

    Args:
        page: The file of the page.

    Raises:
        OSError: The file cannot be read.

    >>> import forebay
    >>> answer = forebay.run("mrc", EXAMPLE, pictures=True)
    >>> [type(figure).__name__ for figure in answer.figures]
    ['Figure']
    """
    import plotly.graph_objects as go

    parser = _Figures()
    parser.feed(Path(page).read_text(encoding="utf-8"))
    made = (json.loads(text) for text in parser.found)
    return [go.Figure({"data": f["data"], "layout": f["layout"]}) for f in made]
