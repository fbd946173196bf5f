"""FedSEM that compares output layers alone, as the code of its authors does.

Theirs (mingxuts/multi-center-fed-learning) clusters the kernel of the last layer, and has an output
layer for each data set that it names.
"""

from dataclasses import dataclass
from typing import ClassVar

from fl_core.messages.protocol import NDArrays
from strategies.clusterings.fedsem import AllModelsClustering
from strategies.rounds.updates import Vector, last_layer, model_vector


@dataclass
class OutputLayersOfAll(AllModelsClustering):
    """`fedsem-flt`'s clustering by the output layer alone."""

    name: ClassVar[str] = "output-layers-of-all"

    def vector(self, model: NDArrays, initial: NDArrays) -> Vector:
        """Return the output layer."""
        return model_vector(model, initial, last_layer(model))
