"""A warm process whose messages come from a test: `python -m tests.warm_site WHAT FOLDER`.

Apart from pytest's process, since it forks.
"""

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil

from fl_app.devices.site import warm

STATE = {"answered": 0}


class Given:
    """Names of messages to answer, one a look; then Ctrl-C, once only who hangs is left."""

    def __init__(self, names, folder, seconds=30.0):
        self.names, self.folder, self.closed_in = list(names), folder, []
        self.count, self.hanging = len(self.names), self.names.count("hangs")
        self.end = time.monotonic() + seconds

    def acquire(self):
        if self.names:
            return self.names.pop(0)
        answered = len(list(self.folder.glob("*.json")))
        left = len(psutil.Process().children())  # a child that failed says so after it has answered
        if (answered == self.count and left <= self.hanging) or time.monotonic() > self.end:
            raise KeyboardInterrupt
        return None

    def close(self):
        self.closed_in.append(os.getpid())


def notes(folder):
    """Return what notes down what a child is like."""

    def answer(name):
        STATE["answered"] += 1
        noted = {
            "process": os.getpid(),
            "parent": os.getppid(),
            "answered": STATE["answered"],
            "drawn": int(np.random.randint(2**31)),  # noqa: NPY002
            "closed": os.getpid() in TASKS[0].closed_in,
            "default": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        }
        part = folder / f"{name}.part"
        part.write_text(json.dumps(noted), encoding="utf-8")
        part.rename(folder / f"{name}.json")
        if name == "fails":
            raise RuntimeError("as an app does")
        if name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "hangs":
            time.sleep(600)

    return answer


TASKS: list[Given] = []


def answer_some(folder, *names):
    """Answer messages, and note which processes are left."""
    TASKS.append(Given(names, folder))
    warm.configure_logging()
    try:
        warm.serve(TASKS[0], notes(folder))
    except KeyboardInterrupt:
        left = [child.pid for child in psutil.Process().children()]
        (folder / "left").write_text(json.dumps([left, STATE["answered"]]), encoding="utf-8")


def answer_many(folder, count):
    """Warm up, train for a moment in each of many children, and note the memory before each."""
    warm.warm_up()
    me, sizes = psutil.Process(), []

    class Counted(Given):
        def acquire(self):
            sizes.append(me.memory_info().rss)
            return super().acquire()

    def answer(name):
        import torch  # noqa: PLC0415

        model = torch.nn.Linear(100, 100)
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(10):
            optimizer.zero_grad()
            model(torch.randn(1000, 100)).square().mean().backward()
            optimizer.step()
        (folder / f"{name}.json").touch()

    try:
        warm.serve(Counted([str(number) for number in range(int(count))], folder, 300.0), answer)
    except KeyboardInterrupt:
        (folder / "sizes").write_text(json.dumps(sizes), encoding="utf-8")


def warm_up(folder):
    """Warm up, and note what is imported then, and what an app of a run is then."""
    installed = warm.warm_up()
    import torch  # noqa: PLC0415

    noted = {
        "ours": [name for name in sys.modules if name.partition(".")[0] in warm.APP_PACKAGES],
        "cuda": torch.cuda.is_initialized(),
        "threads": threading.active_count(),
    }
    before = set(sys.modules)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    noted["by-adam"] = sorted(set(sys.modules) - before)
    for name, more in (("same", b""), ("other", b"app = 'of the run'\n")):
        app = folder / name
        for path, source in installed.sources.items():
            (app / path).parent.mkdir(parents=True, exist_ok=True)
            (app / path).write_bytes(source + (more if path == "fl_app/client_app.py" else b""))
        (app / "fl_app/only_in_the_run.py").touch()
        sys.path.insert(0, str(app))
        installed.replace_if_equal(app)
        found = importlib.import_module("fl_app.client_app")
        later = importlib.import_module("fl_app.only_in_the_run")
        known = found is installed.modules["fl_app.client_app"]
        noted[name] = [known, str(found.app), Path(later.__file__).parents[1].name]
        for module in list(sys.modules):
            if module.partition(".")[0] in warm.APP_PACKAGES:
                del sys.modules[module]
    (folder / "noted").write_text(json.dumps(noted), encoding="utf-8")


if __name__ == "__main__":
    what, place, *more = sys.argv[1:]
    {"answer": answer_some, "many": answer_many, "warm-up": warm_up}[what](Path(place), *more)
