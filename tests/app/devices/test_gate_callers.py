"""Who sends a request to the gate: signatures of keys."""

import base64
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from flwr.supercore.date import now
from hypothesis import given
from hypothesis import strategies as st

from fl_app.devices.gate.callers import signer
from tests.gate_requests import DEVICE, STRANGER, public, signature


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
        (ec.BrainpoolP512R1(), False),  # takes 6.5 ms
    ],
)
def test_a_stranger_does_not_choose_how_long_its_signature_takes(curve, quick):
    key = ec.generate_private_key(curve)
    assert signer(signature(key)) == (public(key) if quick else None)
