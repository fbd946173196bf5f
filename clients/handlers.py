"""What a client answers: thin handlers that turn messages into the pure functions' arguments.

Each message opens one `Client`, which knows the data.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from clients import secure_aggregation
from clients.client import Client, OpenClient, seed_of
from clients.private_training import train_privately
from clients.signatures.answers import (
    STATE,
    eigenvectors_answer,
    refuse_without_noise,
    relevances_answer,
    signature_answer,
)
from clients.signatures.shift import data_shift, image_sketch
from clients.training.local_training import (
    load_tested_model,
    read_objective,
    train_by_objective,
    whole_model,
)
from clients.training.losses import measure_of
from clients.training.paired_comparison import compare_candidate
from clients.training.train import Errors, Scores, UsualTraining, each_score, evaluate_both
from fl_core.data.scaling import Scaling
from fl_core.messages import protocol
from fl_core.models.build import seeded
from fl_core.objectives.objective import Fit, GradientTerm, no_term

# What waits at a client between messages.
_MODELS = "models"
_TRAININGS = "trainings"


def answer_queries(app: ClientApp, open_client: OpenClient = Client) -> None:
    """Register the queries before training, and of rounds that group clients again, with any `app`.

    Those of secure aggregation need `clients.secure_aggregation.mask_mod`, too. `open_client` makes
    of message and context the `Client` that answers: a subclass that has what the clustering needs.
    """
    for action, answer in (
        (protocol.DESCRIBE, _description),
        (protocol.SPECTRUM, eigenvectors_answer),
        (protocol.RELEVANCE, relevances_answer),
        (protocol.SIGNATURE, signature_answer),
        (protocol.LOSSES, _losses),
        (protocol.PUBLIC_KEYS, secure_aggregation.public_keys),
        (protocol.SHARE_KEYS, secure_aggregation.shares_of_secrets),
        (protocol.UNMASK, secure_aggregation.revealed_shares),
    ):
        app.query(action)(handler(answer, open_client))


def handler(
    answer: Callable[[Any], RecordDict], open_client: OpenClient
) -> Callable[[Message, Context], Message]:
    """Return what an app registers so that the client of a message answers it."""

    def reply(message: Message, context: Context) -> Message:
        return Message(answer(open_client(message, context)), reply_to=message)

    return reply


def _description(client: Client) -> RecordDict:
    for waiting in (STATE, _MODELS, secure_aggregation.STATE):  # of a strategy that ran before
        client.context.state.pop(waiting, None)
    client.personal().forget_others()
    index = MetricRecord({protocol.CLIENT_INDEX: client.index})
    said = ConfigRecord(dict(client.description()))
    return RecordDict({protocol.METRICS: index, protocol.CONFIG: said})


def _losses(client: Client) -> RecordDict:
    """Return the training loss on each model; a training names one of those that are stored."""
    refuse_without_noise(client, "losses")
    packed = client.message.content.array_records[protocol.ARRAYS]
    personal = client.personal()
    models = [whole_model(client.message, personal, one) for one in protocol.unpack_models(packed)]
    found = client.losses(models)
    client.context.state.pop(_MODELS, None)
    if client.message.content.config_records[protocol.CONFIG].get(protocol.STORED, True):
        client.context.state[_MODELS] = packed
    return RecordDict({protocol.METRICS: MetricRecord({protocol.LOSSES: found})})


def restore_model(message: Message, context: Context) -> None:
    """Put the stored model that a training message names into the message, or raise a ValueError.

    For an app that answers IFCA's query: its train function starts with this.
    """
    if protocol.STORED_MODEL not in message.content.config_records[protocol.CONFIG]:
        context.state.pop(_MODELS, None)
        return
    if _MODELS not in context.state:
        raise ValueError("this client is to train a model that it was not sent.")
    models = protocol.unpack_models(context.state.array_records.pop(_MODELS))
    message.content[protocol.ARRAYS] = models[protocol.setting(message, protocol.STORED_MODEL)]


def change_flag(message: Message, images: torch.Tensor) -> dict[str, float]:
    """Return FLT's δ as metrics, if the message brings the last sketch of the images."""
    known = message.content.config_records[protocol.CONFIG].get(protocol.IMAGE_SKETCH)
    if known is None:
        return {}
    return {protocol.DATA_SHIFT: data_shift(np.array(known), image_sketch(images))}


def answer_training(app: ClientApp, open_client: OpenClient) -> None:
    """Register a train and an evaluate function with an `app` that has none.

    The order of the samples depends on the message's `seed` and `server-round` and on the client.
    """
    app.train()(handler(_trained, open_client))
    app.evaluate()(handler(_evaluated, open_client))


def _trained(client: Client) -> RecordDict:
    """Train the model that the message carries, by its local objective; return what is shared."""
    message, model = client.message, client.model()
    restore_model(message, client.context)
    usual = UsualTraining(client.training_data, client.training_settings, seed_of(client, 0x7EA1))
    images, labels = usual.data
    metrics = MetricRecord({protocol.NUM_EXAMPLES: len(labels)})
    if is_private := client.promise().training_epsilon > 0:
        _check_noise(client, len(labels))
    fit = _with_noise(client, images, labels) if is_private else usual
    handed = message, client.personal(), model, fit, client.user_objectives()
    with seeded(seed_of(client, 0x10CA), images.device):
        shared, loss = train_by_objective(*handed)
    if not is_private:  # neither would have noise
        metrics.update({protocol.LOSS: loss, **change_flag(message, images)})
    return RecordDict({protocol.ARRAYS: shared, protocol.METRICS: metrics})


def _with_noise(client: Client, images: torch.Tensor, labels: torch.Tensor) -> Fit:
    """Return a training with noise, which has the loss NaN."""
    settings, seed = client.training_settings(), seed_of(client, 0xD409)

    def fit(model: nn.Module, add_term: GradientTerm = no_term, epochs: int | None = None) -> float:
        chosen = settings if epochs is None else replace(settings, local_epochs=epochs)
        with seeded(seed, images.device):
            noise = client.randomness()
            train_privately(model, images, labels, chosen, client.promise(), noise, add_term)
        return math.nan

    return fit


def tested_model(client: Client) -> nn.Module:
    """Return the model that a client tests and saves, for the one that its message carries."""
    seed, model = seed_of(client, 0x7E57), client.model()
    usual = UsualTraining(client.training_data, client.training_settings, seed)
    with seeded(seed, next((tensor.device for tensor in model.state_dict().values()), None)):
        handed = client.message, client.personal(), model, usual, client.user_objectives()
        return load_tested_model(*handed)


def _check_noise(client: Client, number: int) -> None:
    """Refuse what the promise does not cover."""
    objective = read_objective(client.message, client.user_objectives())
    if not objective.may_be_noisy:
        raise ValueError(
            f"training-epsilon is {client.promise().training_epsilon:g}, which does not cover all "
            f"that {objective.sent_name()} trains: choose another local objective, or set "
            "training-epsilon to 0."
        )
    # Each round's noise is reckoned as if all rounds had its batches: a mix of them spends more.
    if client.message.content.config_records[protocol.CONFIG].get(protocol.TUNED, "{}") != "{}":
        raise ValueError(
            f"training-epsilon is {client.promise().training_epsilon:g}, which holds for the "
            "values of the run alone, and this client is to train by others: leave tune out, "
            "or set training-epsilon to 0."
        )
    _count_training(client, number)


def _count_training(client: Client, number: int) -> None:
    """Refuse to train more often than the promise was made for, or on fewer or more samples."""
    state, most = client.context.state, client.promise().most_trainings
    before = state.config_records.get(_TRAININGS, ConfigRecord())
    done, first = (int(str(before.get(key, usual))) for key, usual in (("done", 0), ("of", number)))
    if number != first:
        raise ValueError(
            f"this client has {number} training samples, and had {first} when it trained first in "
            "this run, for which its training-epsilon holds: start a new run."
        )
    if done >= most:
        raise ValueError(
            f"this client has trained {most} times in this run, for which its training-epsilon "
            "holds, and was asked to train again: start a new run with more num-server-rounds."
        )
    state[_TRAININGS] = ConfigRecord({"done": done + 1, "of": number})


def _evaluated(client: Client) -> RecordDict:
    """Test the client's model and return its scores."""
    model, (images, labels) = tested_model(client), client.test_data()
    settings, scaling = client.training_settings(), client.scaling()
    loss, measure = settings.loss, measure_of(settings.metric, scaling)
    other = client.other_test_data()
    found, beside = evaluate_both(model, images, labels, other, loss, measure)
    metrics = MetricRecord({protocol.NUM_EXAMPLES: len(labels), **as_metrics(found, scaling, loss)})
    content = RecordDict({protocol.METRICS: metrics})
    if beside is not None:
        content[protocol.OTHER_TEST] = MetricRecord({**as_metrics(beside, scaling, loss)})
    label = client.message.content.config_records[protocol.CONFIG].get(protocol.CANDIDATE)
    if label is not None and (samples := client.validation_data()) is not None and len(samples[1]):
        draw = [
            protocol.setting(client.message, key, 0)
            for key in (protocol.SEED, protocol.VALIDATION_FOLD)
        ]
        scores, validated = each_score(model, *samples, loss)
        if scaling is not None and scores.dtype == np.float32:
            scores = scores * np.float32(scaling.target_deviation)
            validated = _in_unit(validated, scaling, loss)
        content[protocol.VALIDATION] = compare_candidate(
            client.context, str(label), draw, scores, validated
        )
    return content


def _in_unit(loss: float, scaling: Scaling, user_loss: str) -> float:
    """Return squared errors in the number's unit; NaN of another loss: it would show the scale."""
    return math.nan if user_loss else loss * scaling.target_deviation**2


def as_metrics(found: Scores | Errors, scaling: Scaling | None, user_loss: str) -> dict[str, float]:
    """Return a test's scores by names in messages, in the number's unit, without unknown ones."""
    if isinstance(found, Errors) and scaling is not None:
        unit = scaling.target_deviation
        squared = _in_unit(found.loss, scaling, user_loss)
        found = found._replace(loss=squared, rmse=found.rmse * unit, mae=found.mae * unit)
    return {
        name.replace("_", "-"): value
        for name, value in found._asdict().items()
        if value is not None and not math.isnan(value)
    }
