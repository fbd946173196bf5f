"""The pictures of runs, sweeps and tables.

Every `..._figure` function takes arrays and returns a Vega-Lite specification. `save` draws it as
a PNG, a PDF or an SVG for a paper; the report has the same one for its page.
"""

from fl_app.report.pictures.clients import ClientScore, clients_figure
from fl_app.report.pictures.figure import Spec, on_page, save
from fl_app.report.pictures.labels import labels_figure
from fl_app.report.pictures.lines import lines_figure, rounds_figure
from fl_app.report.pictures.points import traffic_figure, verdicts_figure
from fl_app.report.pictures.similarity import similarity_figure

__all__ = [
    "ClientScore",
    "Spec",
    "clients_figure",
    "labels_figure",
    "lines_figure",
    "on_page",
    "rounds_figure",
    "save",
    "similarity_figure",
    "traffic_figure",
    "verdicts_figure",
]
