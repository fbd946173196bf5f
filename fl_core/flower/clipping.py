"""Flower's clipping of updates to a length.

Nothing public serves: it is part of a strategy of Flower's legacy kind.
"""

from flwr.supercore.differential_privacy import compute_clip_model_update
