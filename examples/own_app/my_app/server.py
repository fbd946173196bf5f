# my_app/server.py
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from my_app.client import make_model
from strategies import make_strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = make_strategy("rcc-pfl", num_clusters=2)
    result = strategy.start(grid, ArrayRecord(make_model().state_dict()), num_rounds=3)
    print("clusters", strategy.clusters.of_client)
    print("models", sorted({name.split("/")[0] for name in result.arrays}))
