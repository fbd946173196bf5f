"""Tables that devices have in tests, and the devices."""

from fl_app.devices.site.device_node import NodeConfig

BERLIN = "age,colour,outcome\n40,red,well\n60,blue,well\n50,red,ill\n50,red,well\n50,red,ill\n"
OSLO = "outcome,colour,age\nwell,green,20\nwell,green,30\n"


def device(folder, name, text, **own):
    path = folder / f"{name}.csv"
    path.write_text(text, encoding="utf-8")
    return NodeConfig.of({"name": name, "data-path": str(path), "label": "outcome", **own})
