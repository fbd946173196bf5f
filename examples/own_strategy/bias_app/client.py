"""Six clients and six classes: clients 0 and 3 know the classes 0 and 1, 1 and 4 know 2 and 3, …"""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.handlers import answer_queries

CLASSES, GROUPS = 6, 3


def load(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy 6×6 images, flat; with the label y, row y is bright."""
    client = int(context.node_config["partition-id"])
    generator = torch.Generator().manual_seed(client)
    labels = 2 * (client % GROUPS) + torch.arange(60) % 2
    images = torch.rand(60, CLASSES, 6, generator=generator)
    images[torch.arange(60), labels] += 0.3
    return images.flatten(1), labels


def make_model() -> torch.nn.Module:
    return torch.nn.Linear(CLASSES * 6, CLASSES)


app = ClientApp()
answer_queries(app)  # the server learns each client's number; BiasClustering asks for no more


@app.train()
def train(message: Message, context: Context) -> Message:
    images, labels = load(context)
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss.item()})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    images, labels = load(context)
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    with torch.no_grad():
        scores = model(images)
    loss = torch.nn.functional.cross_entropy(scores, labels).item()
    accuracy = (scores.argmax(1) == labels).float().mean().item()
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
