"""A file that remembers features by what is in the image, so that no encoder runs twice on it."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

LOCK_TIMEOUT = 60.0  # seconds that one process waits for another's transaction
ROWS_PER_TRANSACTION = 512  # what an interrupted run loses at most
KEYS_PER_QUERY = 500  # SQLite once allowed no more than 999 parameters
KEY_BYTES = 16
STORED_TYPE = np.dtype("<f4")

Item = TypeVar("Item")


class FeatureCache:
    """Features on disk, one SQLite row per distinct sample and feature map.

    Several processes may share the file. It holds only what can be computed again: it may be
    deleted whenever no run uses it. A row that does not match its checksum is computed again.

    Parameters
    ----------
    path : Path
        The file; it and its directory are made when missing.

    Raises
    ------
    OSError
        If the file cannot be opened, is not such a cache, or stays locked for a minute; later, too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._connection() as connection:
            # Readers then never wait for the writer. The file stays in this mode. SQLite refuses
            # at once, without waiting, when another process is at it: then that one does it.
            with suppress(sqlite3.OperationalError):
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "CREATE TABLE IF NOT EXISTS features "
                "(key BLOB PRIMARY KEY, checksum INTEGER NOT NULL, value BLOB NOT NULL)"
            )

    def features(
        self, images: Tensor, compute: Callable[[Tensor], Tensor], checksum: str
    ) -> Tensor:
        """Return the features, (n, d): those on disk are read, the others computed and written.

        Each distinct sample is computed once, in batches of 512; each batch is written before the
        next one is computed.

        Parameters
        ----------
        images : Tensor, uint8, shape (n, C, H, W)
        compute : callable
            From uint8 (m, C, H, W) to float32 (m, d), each row a function of its sample alone.
        checksum : str
            Says which function `compute` is: its name, weights and preprocessing.
        """
        if not len(images):
            return compute(images)
        keys = _keys(images, checksum)
        with self._connection() as connection:
            rows = _read(connection, list(dict.fromkeys(keys)))
            missing = {key: index for index, key in enumerate(keys) if key not in rows}
            for batch in _batches(list(missing.items()), ROWS_PER_TRANSACTION):
                computed = compute(images[[index for _, index in batch]]).numpy()
                values = computed.astype(STORED_TYPE, copy=False)
                new = {key: row.tobytes() for (key, _), row in zip(batch, values, strict=True)}
                _write(connection, new)
                rows |= new
        joined = bytearray().join(rows[key] for key in keys)
        table = np.frombuffer(joined, dtype=STORED_TYPE).reshape(len(keys), -1)
        return torch.from_numpy(table.astype(np.float32, copy=False))

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one call: connections must not cross threads or forks."""
        try:
            with closing(sqlite3.connect(self.path, timeout=LOCK_TIMEOUT)) as connection:
                # A power cut may lose the last rows but cannot damage the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                yield connection
        except sqlite3.Error as error:
            raise OSError(
                f"the feature cache {self.path} cannot be used ({error}): delete it, since its "
                "features can be computed again, or choose another directory for it."
            ) from error


def _keys(images: Tensor, checksum: str) -> list[bytes]:
    """Return a hash of each sample and of the function it goes through."""
    prefix = blake2b(f"{checksum} {tuple(images.shape[1:])} ".encode(), digest_size=KEY_BYTES)
    keys = []
    for image in images.contiguous().numpy():
        content = prefix.copy()
        content.update(image)
        keys.append(content.digest())
    return keys


def _batches(items: list[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of `size`, the last one shorter."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _read(connection: sqlite3.Connection, keys: list[bytes]) -> dict[bytes, bytes]:
    """Return the rows that are there and whole."""
    rows: dict[bytes, bytes] = {}
    for batch in _batches(keys, KEYS_PER_QUERY):
        marks = ", ".join("?" * len(batch))
        query = f"SELECT key, checksum, value FROM features WHERE key IN ({marks})"  # noqa: S608
        rows |= {
            key: value
            for key, checksum, value in connection.execute(query, batch)
            if zlib.crc32(value) == checksum
        }
    return rows


def _write(connection: sqlite3.Connection, rows: dict[bytes, bytes]) -> None:
    """Add the rows in one transaction, in the place of any with the same keys."""
    with connection:
        connection.executemany(
            "INSERT OR REPLACE INTO features (key, checksum, value) VALUES (?, ?, ?)",
            [(key, zlib.crc32(value), value) for key, value in rows.items()],
        )
