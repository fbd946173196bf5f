"""Proxies that the environment names: loopback is reached without them, a server through them."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from fl_app.devices.certificates import make_certificates
from fl_app.devices.site.check import Site, reach_server
from fl_app.devices.site.device_node import NodeConfig
from fl_app.devices.tls import context_for_devices
from fl_core.proxies import bypass_proxies_on_loopback, proxy_for

VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
NOWHERE = "http://127.0.0.1:9"


class Answering(BaseHTTPRequestHandler):
    """Answers GET, and stands for a proxy, which refuses one host, and for the server behind it."""

    def do_GET(self):
        self.send_response(204)
        self.end_headers()

    def do_CONNECT(self):
        self.server.asked.append((self.path, self.headers["Proxy-Authorization"]))
        self.send_response(403 if self.path.startswith("closed") else 200)
        self.end_headers()
        if not self.path.startswith("closed"):
            with self.server.tls.wrap_socket(self.connection, server_side=True) as line:
                line.recv(4096)
                line.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    def log_message(self, *_words):
        pass


@contextmanager
def listening(tls=None):
    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        server.asked, server.tls = [], tls
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv(name, "")  # so that what is set here is put back


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
@pytest.mark.parametrize("exceptions", ["", "example.org", "*"])
def test_no_proxy_stands_between_this_machine_and_itself(variable, exceptions, monkeypatch):
    if variable.isupper():
        monkeypatch.delenv(variable.lower())
    monkeypatch.setenv(variable, NOWHERE)
    monkeypatch.setenv("no_proxy", exceptions)
    with listening() as server:
        url = f"http://127.0.0.1:{server.server_port}/"
        if exceptions != "*":
            with pytest.raises(httpx.ConnectError):
                httpx.get(url)
        bypass_proxies_on_loopback()
        bypass_proxies_on_loopback()
        assert httpx.get(url).status_code == 204
    if exceptions != "*":
        assert proxy_for("fl.example.com", 9092) == (
            None if "http" in variable.lower() else (variable, NOWHERE)
        )
        assert proxy_for("localhost", 9092) is None


def site(host, folder):
    files = (folder / "ca.crt", folder / "berlin.key")
    return Site(host, 9092, *files, NodeConfig("berlin", Path("/srv"), "", None))


def test_a_check_goes_through_the_proxy_that_a_node_uses_and_names_its_variable(
    monkeypatch, tmp_path
):
    make_certificates(tmp_path, ["fl.example.com"], [])
    tls = context_for_devices(tmp_path)
    with listening(tls) as server:
        url = f"http://me:se%20cret@127.0.0.1:{server.server_port}"
        monkeypatch.setenv("https_proxy", url)
        said = reach_server(site("fl.example.com", tmp_path))
        assert said.startswith("fl.example.com:9092 answers, through the proxy of https_proxy, and")
        assert server.asked == [("fl.example.com:9092", "Basic bWU6c2UgY3JldA==")]
        message = rf"https_proxy names the proxy 127\.0\.0\.1:{server.server_port}, which does not"
        with pytest.raises(ValueError, match=rf"{message} lead to closed\.com:9092 \(.*403") as no:
            reach_server(site("closed.com", tmp_path))
    assert "cret" not in str(no.value)
    for url, name in ((NOWHERE, r"127\.0\.0\.1:9"), ("http://me:cret@p:80a", "p:80a")):
        monkeypatch.setenv("https_proxy", url)
        with pytest.raises(ValueError, match=f"https_proxy names the proxy {name}, which"):
            reach_server(site("fl.example.com", tmp_path))
