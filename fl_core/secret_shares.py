"""Combine Shamir's shares, as Flower makes them, to secrets.

Flower computes Lagrange's coefficients again for each block: for a thousand clients, in hours.
"""

from collections.abc import Sequence
from functools import lru_cache

from cryptography.hazmat.primitives.padding import PKCS7

_INDEX, _BLOCK = 4, 16  # bytes of a share: which one it is, then one of each block of the secret
_BITS = 8 * _BLOCK
_POLYNOMIAL = 2**_BITS + 0b10000111  # numbers are polynomials over GF(2), modulo this one


def combine_shares(shares: Sequence[bytes]) -> bytes:
    """Return the secret of shares that all may know: the running time depends on them."""
    coefficients = _at_zero(tuple(int.from_bytes(share[:_INDEX], "little") for share in shares))
    end = len(shares[0]) - (len(shares[0]) - _INDEX) % _BLOCK
    if end < _INDEX + _BLOCK or min(map(len, shares)) < end:
        raise ValueError("a share is too short")
    padding = PKCS7(_BITS).unpadder()
    secret = b""
    for start in range(_INDEX, end, _BLOCK):
        value = 0
        for coefficient, share in zip(coefficients, shares, strict=True):
            value ^= _unreduced_product(int.from_bytes(share[start : start + _BLOCK]), coefficient)
        secret += padding.update(_reduced(value).to_bytes(_BLOCK))
    return secret + padding.finalize()


@lru_cache(maxsize=64)  # of a sum, mostly the same clients' shares
def _at_zero(indices: tuple[int, ...]) -> tuple[int, ...]:
    """Return the coefficient of each share in the value of their polynomial at 0."""
    if len(set(indices)) < len(indices):
        raise ValueError("two shares have one index")
    coefficients = []
    for index in indices:
        above = below = 1
        for other in indices:
            if other != index:
                above = _reduced(_unreduced_product(above, other))
                below = _reduced(_unreduced_product(below, index ^ other))
        coefficients.append(_reduced(_unreduced_product(above, _inverse(below))))
    return tuple(coefficients)


def _unreduced_product(a: int, b: int) -> int:
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = a << 1, b >> 1
    return product


def _reduced(a: int) -> int:
    while above := a >> _BITS:
        a ^= _unreduced_product(_POLYNOMIAL, above)
    return a


def _inverse(a: int) -> int:
    """Return 1/a, by Euclid's algorithm."""
    rest, inverse, other_rest, other = a, 1, _POLYNOMIAL, 0
    while rest > 1:
        shift = other_rest.bit_length() - rest.bit_length()
        if shift < 0:
            rest, inverse, other_rest, other = other_rest, other, rest, inverse
        else:
            other_rest, other = other_rest ^ rest << shift, other ^ inverse << shift
    return inverse
