# my_app/client.py
import numpy as np
import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from clients.client import Client
from clients.features.hog import hog
from clients.handlers import answer_queries


def load(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    """Your images, uint8 (n, C, H, W), and labels. Here: stripes, two labels by brightness."""
    client = int(context.node_config["partition-id"])
    generator = torch.Generator().manual_seed(client)
    images = torch.randint(0, 100, (64, 1, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.arange(64) % 2
    stripes = images[:, :, ::4, :] if client % 2 else images[:, :, :, ::4]
    stripes += (80 + 60 * labels)[:, None, None, None].to(torch.uint8)
    return images, labels


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(28 * 28, 2))


class Stripes(Client):
    def features(self) -> np.ndarray:
        return hog(load(self.context)[0]).numpy()


app = ClientApp()
answer_queries(app, Stripes)


@app.train()
def train(message: Message, context: Context) -> Message:
    images, labels = load(context)
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images / 255 - 0.5), labels)
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
        scores = model(images / 255 - 0.5)
    loss = torch.nn.functional.cross_entropy(scores, labels).item()
    accuracy = (scores.argmax(1) == labels).float().mean().item()
    metrics = MetricRecord({"num-examples": len(labels), "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
