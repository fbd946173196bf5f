"""The pictures of a comparison: who is like whom, and which strategy serves the clients best.

Every `draw_...` function takes arrays, writes one PNG and returns where it lies. Nothing here keeps
state: figures are made without pyplot, so pictures may be drawn from threads and on machines
without a screen, and the same input always gives the same bytes.
"""

from fl_app.report.pictures.clients import draw_accuracy_per_client
from fl_app.report.pictures.clusters import MOST_CLUSTERS, draw_clusters
from fl_app.report.pictures.labels import draw_label_counts
from fl_app.report.pictures.rounds import draw_accuracy_per_round
from fl_app.report.pictures.similarity import draw_similarity

__all__ = [
    "MOST_CLUSTERS",
    "draw_accuracy_per_client",
    "draw_accuracy_per_round",
    "draw_clusters",
    "draw_label_counts",
    "draw_similarity",
]
