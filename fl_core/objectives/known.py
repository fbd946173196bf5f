"""The local objectives by name."""

from fl_core.objectives.apfl import Apfl
from fl_core.objectives.ditto import Ditto
from fl_core.objectives.fedamp import FedAmp
from fl_core.objectives.fedem import FedEm
from fl_core.objectives.fedrc import FedRc
from fl_core.objectives.fine_tune import AfterTraining, FineTune
from fl_core.objectives.lcfed import LcFed
from fl_core.objectives.objective import LocalObjective
from fl_core.objectives.pfedme import PFedMe
from fl_core.objectives.plain import Plain
from fl_core.objectives.private_head import PrivateHead
from fl_core.objectives.private_layers import PrivateLayers
from fl_core.objectives.private_norms import PrivateNorms
from fl_core.objectives.prox import Prox
from fl_core.objectives.scaffold import Scaffold

OBJECTIVES: dict[str, type[LocalObjective]] = {
    part.name: part
    for part in (
        *(Plain, Prox, FineTune, AfterTraining, Ditto, PrivateLayers, PrivateHead, PrivateNorms),
        *(Apfl, PFedMe, Scaffold, FedAmp, LcFed, FedEm, FedRc),
    )
}
USUAL = (Plain, AfterTraining)
"""The objectives that train as usual."""
