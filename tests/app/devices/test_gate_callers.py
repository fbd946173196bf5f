"""Who sends a request to the gate: signatures of keys."""

import asyncio
import base64
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.supercore.date import now
from hypothesis import given
from hypothesis import strategies as st

from fl_app.devices.gate import refusals
from fl_app.devices.gate.callers import signer
from tests.gate_requests import DEVICE, STRANGER, public, signature


@pytest.mark.parametrize(
    ("seconds", "is_signed"), [(-6, False), (-4, True), (0, True), (304, True), (306, False)]
)
def test_a_signature_says_who_calls_while_clocks_differ_as_flower_lets_them(seconds, is_signed):
    headers = [(b"content-length", b"0"), *signature(DEVICE, now() - timedelta(seconds=seconds))]
    assert signer(headers) == (public(DEVICE) if is_signed else None)


def test_nothing_may_be_missing_or_there_twice():
    """Of two headers with one name, the gate and the SuperLink could each take another."""
    headers = signature(DEVICE)
    for one in headers:
        assert signer([header for header in headers if header is not one]) is None
        assert signer([*headers, one]) is None
    assert signer([]) is None


RSA = rsa.generate_private_key(65537, 2048).public_key()
PEM = RSA.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@pytest.mark.parametrize(
    ("which", "value"),
    [
        (0, base64.b64encode(PEM)),  # a key of another kind
        *((1, time) for time in (b"2026-01-01", b"now", b"2026-01-01T00:00:00", b"\xff")),
        (2, signature(STRANGER)[2][1]),
    ],
)
def test_what_is_no_signature_of_this_key_says_nothing(which, value):
    headers = signature(DEVICE)
    headers[which] = (headers[which][0], value)
    assert signer(headers) is None


@given(which=st.integers(0, 2), value=st.binary(max_size=80))
def test_rubbish_says_nothing(which, value):
    headers = signature(DEVICE)
    headers[which] = (headers[which][0], value)
    assert signer(headers) is None


@pytest.mark.parametrize(
    ("curve", "quick"), [(ec.SECP521R1(), True), (ec.BrainpoolP512R1(), False)]
)
def test_a_stranger_does_not_choose_how_long_its_signature_takes(curve, quick):
    key = ec.generate_private_key(curve)
    assert signer(signature(key)) == (public(key) if quick else None)


def test_a_flood_of_refusals_fills_no_log(monkeypatch, caplog):
    """A hundred a second for a minute: two lines an address, and those of a hundred addresses."""
    monkeypatch.setattr(refusals, "WINDOW_SECONDS", 0.05)
    log = refusals.RefusalLog()

    async def flood():
        for number in range(6000):
            log.note(f"10.0.{number % 50}.1", "with 401\n\x1b[2K" + "x" * 9000)
        for number in range(6000):
            log.note(f"2001:db8::{number:x}", "with 401")
        await asyncio.sleep(0.1)
        log.note("10.0.0.1", "with 503, anew")

    asyncio.run(flood())
    lines = [record.message for record in caplog.records]
    assert len(lines) == 50 + 50 + 1 + 50 + 1 + 1
    assert lines[0].startswith(r"refused 10.0.0.1 with 401 \x1b[2Kxxx")
    assert max(map(len, lines)) <= 400
    assert "refused 10.0.49.1 119 more times in a minute" in lines
    assert "refused other addresses 5949 more times in a minute" in lines
    assert lines[-1] == "refused 10.0.0.1 with 503, anew"
