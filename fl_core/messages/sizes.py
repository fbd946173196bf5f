"""The size limit of answers, for the gate and the server."""

_FLOOR = 16 * 2**20
"""Room for eigenvectors, which are sent before the first model: 100 of 40,000 dimensions."""
_FACTOR = 2


def max_answer_bytes(largest_message: int) -> int:
    """Return the largest size of an answer in bytes, given that of the largest message so far.

    Clients answer with a model like the one that they received, or with eigenvectors.
    """
    return _FLOOR + _FACTOR * largest_message
