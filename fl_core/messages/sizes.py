"""How large an answer may be: the gate refuses a larger one, and so does the server."""

_FLOOR = 16 * 2**20
"""Room for eigenvectors, which are sent before the first model: 100 of 40,000 dimensions."""
_FACTOR = 2


def most_bytes_of_answer(largest_message: int) -> int:
    """Return how many bytes an answer may have, if no message so far had more than these.

    Clients answer with a model such as they were sent, or with eigenvectors.

    Examples
    --------
    >>> most_bytes_of_answer(0) // 2**20, most_bytes_of_answer(50 * 2**20) // 2**20
    (16, 116)
    """
    return _FLOOR + _FACTOR * largest_message
