"""Builds strategies from their names: clustering, aggregation, local objective."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np
from flwr.app import ArrayRecord
from torch import nn

from clients.accelerator import one_thread, torch_device
from clients.features.dimensions import compared_dimension
from clients.settings import AUTO, CPU
from clients.signatures.pretraining import choose_source, pretrained_autoencoder
from fl_app.config.run_config import Config
from fl_app.config.tuning import AS_TASKS, combinations
from fl_core.agreement.agreement import Agreement
from fl_core.data.dataset import Dataset
from fl_core.data.settings import SITES
from fl_core.messages import protocol
from fl_core.models.build import build_model
from fl_core.models.layers import is_within, layer_of, split, tensor_in_both
from fl_core.objectives.plain import Plain
from fl_core.objectives.private_head import PrivateHead
from fl_core.objectives.private_norms import norm_layers
from fl_core.options import key_of
from fl_core.partitions.federation import Federation
from strategies import ClusteredStrategy
from strategies.aggregations.lps_gps import common_layers
from strategies.catalogue import Part, parameters, system_of
from strategies.clusterings.ifca import drawn_models


class Setting(NamedTuple):
    """The values that the parts of a strategy are built from.

    `data` has the kind of all clients' samples; only a simulation has a federation.
    """

    config: Config
    data: Dataset | Agreement
    seed: int
    federation: Federation | None = None


def with_values(setting: Setting, values: Mapping[str, Any]) -> Setting:
    """Return the setting with other values of options, by run-config key."""
    return setting._replace(config=setting.config.with_values(values))


def tried_settings(setting: Setting, strategy: str) -> list[Setting]:
    """Return a strategy's settings, one for each combination of the values that it tries."""
    configs = [setting.config.with_values(v) for v in combinations(setting.config.tune, strategy)]
    return [setting._replace(config=config.for_strategies(strategy)) for config in configs]


def build_strategy(name: str, setting: Setting, options: Mapping[str, Any]) -> ClusteredStrategy:
    """Return the strategy of a name in `Config.strategy`."""
    system, setting = system_of(name), setting._replace(config=setting.config.for_strategies(name))
    values: dict[str, Any] = {}
    for part in system.parts:
        values |= _values(part, setting)
    parts = system.build(weighted_mean=setting.config.weighted_mean, **values)
    _check_layers(name, setting, *parts[1:])
    return ClusteredStrategy(*parts, **options)


def check_strategy(name: str, setting: Setting) -> None:
    """Refuse what `build_strategy` does, as far as it is known before all samples are read."""
    for tried in tried_settings(setting, name):
        parts: list[Any] = []
        for part in system_of(name).parts:
            fields = parameters(part).keys()
            weighted = {"weighted": False} if "weighted" in fields else {}  # `System.build` sets it
            is_early = not DEFERRED & fields
            parts.append(part(**_values(part, tried) | weighted) if is_early else None)
        _check_layers(name, tried, *parts[1:])


def _check_layers(name: str, setting: Setting, aggregation: Any, local: Any) -> None:
    """Refuse private layers that the model lacks, or that clusters share, and a misplaced last."""
    common = getattr(aggregation, "common_layers", ())
    if isinstance(local, Plain) and not common:
        return
    model = initial_model(setting)
    arrays = model.state_dict()
    if local.uses_last_layer and [*model.parameters()][-1].shape[:1] != (setting.data.num_classes,):
        raise ValueError(
            f"{name} takes the last layer, {layer_of([*arrays][-1])}, for the one of the outputs, "
            f"which it is not in {setting.config.model}: register that one last."
        )
    private = local.private_layers_of(arrays)
    for layers in (private, common):
        if pair := tensor_in_both(arrays, layers):
            raise ValueError(
                f"{name} treats {pair[0]} and {pair[1]} differently, but in {setting.config.model} "
                "they are one tensor: register each layer once, and tie no weights across them."
            )
    if isinstance(local, PrivateHead):
        trained = [key for key, one in model.named_parameters() if one.requires_grad]
        if not all(split(dict.fromkeys(trained), private)):
            raise ValueError(
                f"{name} trains private and shared layers in turn, but one of the two has nothing "
                f"to train in {setting.config.model}: choose other private-layers, or fedper."
            )
    for layer in common:
        if is_within(layer, private) or any(is_within(one, [layer]) for one in private):
            raise ValueError(
                f'{name} keeps the layer "{layer}" at the clients, but common-layers shares it '
                "among all clusters: remove it from one of the two."
            )


def _values(part: Part, setting: Setting) -> dict[str, Any]:
    """Return the values of a part's fields, from providers or options."""
    options, values = setting.config.by_key(), {}
    for name, field in parameters(part).items():
        if name == "num_clusters":
            values[name] = _number(setting, field.default)
        elif name in PROVIDERS and (
            name not in GROUND_TRUTH or getattr(part, "needs_tasks", False)
        ):
            values[name] = PROVIDERS[name](setting)
        elif name == "num_eigenvectors" and setting.config.num_eigenvectors == AUTO:
            if field.default is MISSING:
                values[name] = setting.config.eigenvectors()
        elif key_of(field) in options:
            values[name] = options[key_of(field)]
        elif field.default is MISSING is field.default_factory and name != "weighted":
            raise ValueError(
                f"strategy names {part.__module__}:{part.__name__}, but its field {name} has no "
                "default, and is neither an option nor a value that the app provides: give it a "
                "default."
            )
    return values


def runnable_strategies(setting: Setting) -> tuple[Config, dict[str, str]]:
    """Leave out the strategies that cannot run, and return why; a ValueError if none can."""
    config = setting.config
    lacking = {name: why for name in config.strategy if (why := _why_not_runnable(name, setting))}
    runnable = tuple(name for name in config.strategy if name not in lacking)
    if not runnable:
        reasons = "; ".join(f"{name} {why}" for name, why in lacking.items())
        raise ValueError(
            f"strategy is {','.join(config.strategy)}, but {reasons}: give what is missing, or "
            "choose a strategy that detects clusters, or single or local."
        )
    return replace(config, strategy=runnable), {name: f"it {why}" for name, why in lacking.items()}


def _why_not_runnable(name: str, setting: Setting) -> str:
    """Return why a strategy cannot run, in words that follow its name; empty: it can."""
    config, clustering = setting.config, system_of(name).clustering
    if clustering.needs_tasks and setting.federation and not setting.federation.knows_tasks:
        return f"must know the tasks of clients, and {config.dataset} does not name them"
    number = parameters(clustering).get("num_clusters")
    needs_number = number and number.default is MISSING
    if needs_number and any(
        fixed_num_clusters(one) is None for one in tried_settings(setting, name)
    ):
        return f"needs a number of clusters, and num-clusters is {config.num_clusters}"
    return ""


def _number(setting: Setting, default: Any) -> Any:
    """Return the number of clusters, or the rule that chooses it; `auto`: the part's default."""
    number = fixed_num_clusters(setting)
    if number is not None:
        return number
    # The number of tasks is unknown here.
    word = AUTO if setting.config.num_clusters == AS_TASKS else setting.config.num_clusters
    return {AUTO: default, "silhouette": "silhouette"}.get(str(word), "elbow")


def fixed_num_clusters(setting: Setting) -> int | None:
    """Return the configured number of clusters; None: a rule chooses it."""
    number = setting.config.num_clusters
    if number == AS_TASKS and setting.federation and setting.federation.knows_tasks:
        return len(setting.federation.partition.tasks)
    return number if isinstance(number, int) else None


def initial_model(setting: Setting) -> nn.Module:
    """Return the configured model with random weights."""
    data = setting.data
    return build_model(setting.config.model, data.sample_shape, data.num_classes, setting.seed)


@lru_cache(maxsize=2)
def _encoder(
    source: str, channels: int, dataset: str, data_dir: str, device: str
) -> tuple[protocol.NDArrays, str]:
    """Return the encoder's weights, and a warning about its images, if there is one."""
    # A folder of the user has no published data sets.
    data_dir = "" if dataset in ("folder", SITES) else data_dir
    # The server may lack the GPU that its clients need.
    here = torch_device(CPU if device == CPU else AUTO)
    with one_thread():  # layers are small, and threads that wait for each other cost more
        chosen, note = choose_source(source, channels, dataset, data_dir)
        autoencoder = pretrained_autoencoder(chosen, channels, data_dir=data_dir, device=here)
    return _arrays_of(autoencoder), note


def _encoder_of(setting: Setting) -> tuple[protocol.NDArrays, str]:
    config, channels = setting.config, setting.data.sample_shape[0]
    return _encoder(config.encoder, channels, config.dataset, config.data_dir, config.device)


def _federation(setting: Setting) -> Federation:
    return cast(Federation, setting.federation)  # no strategy of devices needs tasks


def _arrays_of(model: nn.Module) -> protocol.NDArrays:
    return protocol.to_arrays(ArrayRecord(model.state_dict()))


def _later_tasks(setting: Setting) -> dict[int, dict[int, int]]:
    federation, rounds = _federation(setting), setting.config.num_server_rounds
    first, last = (federation.tasks_at(r).tolist() for r in (0, rounds))
    return {federation.drift_round: dict(enumerate(last))} if first != last else {}


# The true tasks. A part that does not need them may have fields of these names.
GROUND_TRUTH = {"labels", "later", "sizes"}
# Values that need samples or a training.
DEFERRED = {"encoder", "encoder_note", *GROUND_TRUTH}
# Values that are no options, by the name of the field that takes them.
PROVIDERS: dict[str, Callable[[Setting], Any]] = {
    "seed": lambda setting: setting.seed,
    "dimension": lambda setting: compared_dimension(
        setting.config.features,
        setting.data.sample_shape,
        is_float=setting.data.is_float,
        is_private=setting.config.pre_round_epsilon > 0,
    ),
    "draw_model": lambda setting: drawn_models(
        lambda seed: _arrays_of(initial_model(setting._replace(seed=seed))), setting.seed
    ),
    "common_layers": lambda setting: common_layers(
        setting.config.of_strategies["common-layers"], initial_model(setting)
    ),
    "encoder": lambda setting: _encoder_of(setting)[0],
    "encoder_note": lambda setting: _encoder_of(setting)[1],
    "norm_layers": lambda setting: norm_layers(initial_model(setting), setting.config.model),
    "labels": lambda setting: dict(enumerate(_federation(setting).tasks_at(0).tolist())),
    "later": _later_tasks,
    "sizes": lambda setting: np.bincount(_federation(setting).partition.client_tasks).tolist(),
}
