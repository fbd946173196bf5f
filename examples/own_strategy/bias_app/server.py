"""The strategy: our own clustering, times the mean within each cluster."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from bias_app.bias import BiasClustering
from bias_app.client import make_model
from strategies import ClusteredStrategy, ClusterMean

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    torch.manual_seed(0)
    strategy = ClusteredStrategy(BiasClustering(num_clusters=3), ClusterMean())
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=3)
    print("clusters", strategy.clusters.of_client)
    for number, metrics in result.evaluate_metrics_clientapp.items():
        print("round", number, "accuracy", f"{metrics['accuracy']:.2f}")
