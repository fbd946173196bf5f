"""Who calls at the gate: signatures, and connections that must show whose they are."""

import asyncio
import base64
from datetime import timedelta

import httpx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.supercore.date import now
from hypothesis import given
from hypothesis import strategies as st

from fl_app.devices.gate import connections
from fl_app.devices.gate.application import Gate
from fl_app.devices.gate.callers import network_of, signer
from fl_app.devices.gate.connections import Connections
from tests.gate_requests import DEVICE, PULL, STRANGER, Upstream, known, public, said, signature


def test_a_signature_says_who_calls():
    assert signer([(b"content-length", b"0"), *signature(DEVICE)]) == public(DEVICE)


@pytest.mark.parametrize("seconds", [-6, 306, 10**6])
def test_a_signature_of_another_time_says_nothing(seconds):
    assert signer(signature(DEVICE, now() - timedelta(seconds=seconds))) is None


@pytest.mark.parametrize("seconds", [-4, 0, 304])
def test_clocks_may_differ_as_much_as_flower_lets_them(seconds):
    assert signer(signature(DEVICE, now() - timedelta(seconds=seconds))) == public(DEVICE)


def test_another_keys_signature_says_nothing():
    key, timestamp, _ = signature(DEVICE)
    _, _, other = signature(STRANGER, now())
    assert signer([key, timestamp, other]) is None


def test_nothing_may_be_missing_or_there_twice():
    """Of two headers with one name, the gate and the SuperLink could each take another."""
    headers = signature(DEVICE)
    for one in headers:
        assert signer([header for header in headers if header is not one]) is None
        assert signer([*headers, one]) is None
    assert signer([]) is None


@given(which=st.integers(0, 2), value=st.binary(max_size=80))
def test_rubbish_says_nothing(which, value):
    headers = signature(DEVICE)
    headers[which] = (headers[which][0], value)
    assert signer(headers) is None


@pytest.mark.parametrize("timestamp", [b"2026-01-01", b"now", b"2026-01-01T00:00:00", b"\xff"])
def test_a_time_that_is_none(timestamp):
    headers = signature(DEVICE)
    headers[1] = (headers[1][0], timestamp)
    assert signer(headers) is None


def test_a_key_of_another_kind_says_nothing():
    pem = (
        rsa.generate_private_key(65537, 2048)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    headers = signature(DEVICE)
    headers[0] = (headers[0][0], base64.b64encode(pem))
    assert signer(headers) is None


@pytest.mark.parametrize(
    ("curve", "quick"),
    [
        (ec.SECP256R1(), True),
        (ec.SECP384R1(), True),
        (ec.SECP521R1(), True),
        (ec.BrainpoolP512R1(), False),  # 6.5 ms of everybody's time for each request
    ],
)
def test_a_stranger_does_not_choose_how_long_its_signature_takes(curve, quick):
    key = ec.generate_private_key(curve)
    assert signer(signature(key)) == (public(key) if quick else None)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.5", "203.0.113.5"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.5", "203.0.113.5"),
        ("unknown", "unknown"),
    ],
)
def test_what_counts_as_one_address(address, network):
    assert network_of(address) == network


class Line:
    """A connection that only notes when it is closed."""

    def __init__(self, name, closed):
        self.transport = self
        self.abort = lambda: closed.append(name)


def test_the_oldest_newcomer_makes_room(monkeypatch):
    monkeypatch.setattr(connections, "_MOST_NEWCOMERS", 4)
    monkeypatch.setattr(connections, "_MOST_NEWCOMERS_OF_ADDRESS", 2)
    closed = []
    newcomers = Connections()
    lines = [Line(number, closed) for number in range(8)]
    for number, network in enumerate("aab"):
        newcomers.add(lines[number], network)
    newcomers.remove(lines[0])  # a device, or gone
    newcomers.add(lines[3], "a")
    assert closed == []
    newcomers.add(lines[4], "a")  # the third of its address
    assert closed == [1]
    newcomers.add(lines[5], "c")
    newcomers.add(lines[6], "d")  # the fifth of all
    assert closed == [1, 2]
    newcomers.remove(lines[2])
    newcomers.add(lines[7], "e")
    assert closed == [1, 2, 3]


def test_a_device_has_no_more_connections_than_it_can_use(monkeypatch):
    """Seven hundred of one device would leave none to the others."""
    monkeypatch.setattr(connections, "_MOST_OF_DEVICE", 2)
    closed = []
    all_of_them = Connections()
    lines = [Line(number, closed) for number in range(5)]
    for line in lines:
        all_of_them.add(line, "a")
    for number in (0, 1, 0):
        all_of_them.used_by(b"berlin", lines[number])
    all_of_them.used_by(b"lyon", lines[2])
    assert closed == []
    all_of_them.used_by(b"berlin", lines[3])
    assert closed == [1]  # used least lately
    all_of_them.remove(lines[0])
    all_of_them.used_by(b"berlin", lines[4])
    assert closed == [1]
    for line in lines:
        all_of_them.remove(line)
    assert not all_of_them._of_device
    assert not all_of_them._owners


def test_a_device_is_no_newcomer():
    """What the connection puts into the scope of its requests is what the gate tells."""
    heard = []

    class Connection:
        is_closed, is_stopping = False, True

        def is_devices(self, key):
            heard.append("device")

    async def steps():
        async with httpx.AsyncClient(transport=Upstream(200)) as client:
            gate = Gate("127.0.0.1:8000", client)

            async def receive():
                return said(b"")

            async def send(event):
                pass

            async def ask():
                scope = {"method": "POST", "raw_path": PULL, "query_string": b"", "client": None}
                headers = [(b"content-length", b"0"), *signature(DEVICE)]
                state = {"connection": Connection()}
                await gate({**scope, "headers": headers, "state": state}, receive, send)

            await ask()
            first = list(heard)
            known(gate)
            await ask()
            return first

    assert asyncio.run(steps()) == []
    assert heard == ["device"]
