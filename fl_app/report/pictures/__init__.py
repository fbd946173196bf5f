"""The pictures of a comparison: who is like whom, and which strategy serves the clients best.

Every `..._figure` function takes arrays and returns a figure, which `save` writes as a PNG,
a PDF or an SVG. Nothing here keeps state: figures are made without pyplot, so pictures may be drawn
from threads and on machines without a screen, and the same input always gives the same bytes.
"""

from fl_app.report.pictures.certainty import certainty_figure
from fl_app.report.pictures.clients import clients_figure
from fl_app.report.pictures.cluster_rounds import cluster_rounds_figure
from fl_app.report.pictures.clusters import MOST_CLUSTERS, clusters_figure
from fl_app.report.pictures.dots import dots_figure
from fl_app.report.pictures.figure import save
from fl_app.report.pictures.labels import labels_figure
from fl_app.report.pictures.lines import lines_figure
from fl_app.report.pictures.published import Group, published_figure
from fl_app.report.pictures.rounds import rounds_figure
from fl_app.report.pictures.similarity import similarity_figure
from fl_app.report.pictures.traffic import traffic_figure

__all__ = [
    "MOST_CLUSTERS",
    "Group",
    "certainty_figure",
    "clients_figure",
    "cluster_rounds_figure",
    "clusters_figure",
    "dots_figure",
    "labels_figure",
    "lines_figure",
    "published_figure",
    "rounds_figure",
    "save",
    "similarity_figure",
    "traffic_figure",
]
