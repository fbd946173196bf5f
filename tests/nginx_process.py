"""nginx with deploy/nginx.conf, on free ports of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.device_processes import Program, running

DEPLOY = Path(__file__).parents[1] / "deploy"
NGINX = shutil.which("nginx", path=os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"]))
needs_nginx = pytest.mark.skipif(NGINX is None, reason="nginx is not installed")


def write_configuration(folder: Path, port: int, gate_port: int) -> None:
    """Copy deploy/nginx.conf into a folder, with other ports."""
    text = (DEPLOY / "nginx.conf").read_text(encoding="ascii")
    for old, new in (("listen 9092 ", f"listen {port} "), (":9093;", f":{gate_port};")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / "nginx.conf").write_text(text, encoding="ascii")


@contextmanager
def nginx_running(words: list[str], home: Path, port: int) -> Iterator[Program]:
    """Start nginx by a command line, return once it listens, and check its log at the end."""
    assert words[0].rpartition("/")[2] == "nginx"
    with running("nginx", [str(NGINX), *words[1:]], home) as nginx:
        deadline = time.monotonic() + 30
        while True:
            with socket.socket() as line:
                if line.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert nginx.process.poll() is None, nginx.text
            assert time.monotonic() < deadline, nginx.text
            time.sleep(0.1)
        yield nginx
    assert "[emerg]" not in nginx.text
    assert "[alert]" not in nginx.text
