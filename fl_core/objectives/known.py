"""The local objectives by name."""

from fl_core.objectives.ditto import Ditto
from fl_core.objectives.objective import LocalObjective
from fl_core.objectives.plain import Plain
from fl_core.objectives.private_head import PrivateHead
from fl_core.objectives.private_layers import PrivateLayers
from fl_core.objectives.private_norms import PrivateNorms
from fl_core.objectives.prox import Prox

OBJECTIVES: dict[str, type[LocalObjective]] = {
    part.name: part for part in (Plain, Prox, Ditto, PrivateLayers, PrivateHead, PrivateNorms)
}
