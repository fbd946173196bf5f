"""The pictures of runs, sweeps and tables.

Every `..._figure` function takes arrays and returns a Vega-Lite specification. `save` draws it as
a PNG, a PDF or an SVG for a paper; the report has the same one for its page.
"""

from fl_app.report.pictures.certainty import certainty_figure
from fl_app.report.pictures.clients import ClientScore, clients_figure
from fl_app.report.pictures.figure import Spec, on_page, save
from fl_app.report.pictures.labels import labels_figure
from fl_app.report.pictures.lines import cluster_rounds_figure, lines_figure, rounds_figure
from fl_app.report.pictures.points import (
    Group,
    agreement_figure,
    dots_figure,
    published_figure,
    traffic_figure,
    verdicts_figure,
)
from fl_app.report.pictures.similarity import similarity_figure

__all__ = [
    "ClientScore",
    "Group",
    "Spec",
    "agreement_figure",
    "certainty_figure",
    "clients_figure",
    "cluster_rounds_figure",
    "dots_figure",
    "labels_figure",
    "lines_figure",
    "on_page",
    "published_figure",
    "rounds_figure",
    "save",
    "similarity_figure",
    "traffic_figure",
    "verdicts_figure",
]
