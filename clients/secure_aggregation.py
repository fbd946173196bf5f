"""The client's side of secure aggregation: keys, shares of secrets, masked updates (`masking`).

A round's secrets wait in the node's state from one message to the next. Each masks one update, and
one answer reveals shares: of a client with an update, of its own mask; of others, of their key.
"""

import os
from typing import cast

import numpy as np
from cryptography.fernet import InvalidToken
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from clients.client import Client
from fl_core import masking
from fl_core.flower.keys import (
    bytes_to_private_key,
    bytes_to_public_key,
    create_shares,
    decrypt,
    encrypt,
    generate_key_pairs,
    generate_shared_key,
    private_key_to_bytes,
    public_key_to_bytes,
    share_keys_plaintext_concat,
    share_keys_plaintext_separate,
)
from fl_core.messages import protocol
from fl_core.models.layers import is_within

STATE = "secure-aggregation"

# What waits there: of the pair of keys for masks the secret, of that for shares the private key;
# then this client's position, the seed of the mask that it adds alone, and the keys that it has in
# common with each other client.
_MASK_SECRET, _SHARE_KEY = "mask-secret", "share-key"
_POSITION, _SEED, _MASK_KEYS, _SHARE_KEYS = "position", "seed", "mask-keys", "share-keys"


def public_keys(client: Client) -> RecordDict:
    """Draw the round's two pairs of keys, and return the public ones."""
    secret = os.urandom(masking.SECRET_BYTES)
    private, public = generate_key_pairs()
    client.context.state[STATE] = ConfigRecord(
        {_MASK_SECRET: secret, _SHARE_KEY: private_key_to_bytes(private)}
    )
    for_masks = masking.private_key(secret).public_key()
    return protocol.with_arrays(
        {protocol.KEYS: masking.as_rows([public_key_to_bytes(k) for k in (for_masks, public)])}
    )


def shares_of_secrets(client: Client) -> RecordDict:
    """Return each client's share of this one's two secrets, encrypted, and their digests.

    A ValueError says that the keys are too few, not all different, or lack this client's keys.
    """
    state = client.context.state.config_records.pop(STATE)
    secret = cast(bytes, state[_MASK_SECRET])
    for_masks = masking.private_key(secret)
    for_shares = bytes_to_private_key(cast(bytes, state[_SHARE_KEY]))
    public = [public_key_to_bytes(key.public_key()) for key in (for_masks, for_shares)]
    keys = [[key.tobytes() for key in pair] for pair in _sent(client.message, protocol.KEYS)]
    count = len(keys)
    different = {key for pair in keys for key in pair}
    if count < masking.FEWEST or public not in keys or len(different) < 2 * count:
        raise ValueError(
            f"the server sent the keys of {count} clients, which cannot hide an update: at least "
            f"{masking.FEWEST} different keys are needed, this client's among them."
        )
    position = keys.index(public)
    publics = [[bytes_to_public_key(key) for key in pair] for pair in keys]
    share_keys = [generate_shared_key(for_shares, public) for _, public in publics]
    seed = os.urandom(masking.SECRET_BYTES)
    shares = [create_shares(s, masking.threshold(count), count) for s in (seed, secret)]
    ciphertexts = [
        encrypt(key, share_keys_plaintext_concat(position, other, *both))
        for other, (key, both) in enumerate(zip(share_keys, zip(*shares, strict=True), strict=True))
    ]
    client.context.state[STATE] = ConfigRecord(
        {
            _POSITION: position,
            _SEED: seed,
            _MASK_KEYS: [masking.common_key(for_masks, public) for public, _ in publics],
            _SHARE_KEYS: share_keys,
        }
    )
    digests = [masking.as_rows([masking.digest(share) for share in kind]) for kind in shares]
    return protocol.with_arrays(
        {protocol.SHARES: masking.as_rows(ciphertexts), protocol.DIGESTS: np.stack(digests)}
    )


def mask_mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Answer as the app does, but mask a trained model that is to be summed with others.

    A mod for any ClientApp that has `clients.handlers.answer_queries`. Nothing else of the app's
    answer leaves the client. A ValueError says why the update cannot be masked.
    """
    config = message.content.config_records.get(protocol.CONFIG, ConfigRecord())
    if message.metadata.message_type != protocol.TRAIN or protocol.PEERS not in config:
        return call_next(message, context)
    peers = [int(peer) for peer in cast(list[int], config[protocol.PEERS])]
    state = context.state.config_records.get(STATE, ConfigRecord())
    if _MASK_KEYS not in state:
        raise ValueError("this client is to mask an update, but has no keys left for it.")
    keys = cast(list[bytes], state.pop(_MASK_KEYS))  # they mask one update, and no other
    position, count = cast(int, state[_POSITION]), len(keys)
    if not _is_safe(peers, [], position, count):
        raise ValueError(
            f"the sum would be over {len(peers)} of {count} clients, which hides no update: it "
            f"must include this client, at least {masking.threshold(count)} clients, and no "
            "unknown position."
        )
    answer = call_next(message, context)
    metrics = protocol.metrics_of(answer.content)
    weight = metrics[protocol.NUM_EXAMPLES] if config[protocol.WEIGHTED] else 1
    trained, received = (
        protocol.to_arrays(one.content.array_records[protocol.ARRAYS]) for one in (answer, message)
    )
    masked = masking.encode_update(
        trained,
        {n: a for n, a in received.items() if n in trained or not is_within(n, [protocol.BESIDE])},
        int(cast(float, weight)),
        protocol.number(metrics, protocol.LOSS),
        count,
    )
    masked += masking.mask(cast(bytes, state[_SEED]), len(masked))
    for other in peers:
        if other != position:
            masking.add_common_mask(masked, keys[other], position, other)
    return Message(protocol.with_arrays({protocol.MASKED: masked}), reply_to=message)


def revealed_shares(client: Client) -> RecordDict:
    """Return this client's shares: of each client one secret, never the other; zeros for none.

    A ValueError refuses what would reveal an update, and a second answer.
    """
    if STATE not in client.context.state:
        raise ValueError("this client has revealed its shares already, or has none.")
    state = client.context.state.config_records.pop(STATE)
    position, keys = cast(int, state[_POSITION]), cast(list[bytes], state[_SHARE_KEYS])
    summed, dropped = (
        _sent(client.message, name).tolist() for name in (protocol.SURVIVORS, protocol.DROPPED)
    )
    if not _is_safe(summed, dropped, position, len(keys)):
        raise ValueError(
            f"shares for a sum of {len(summed)} of {len(keys)} clients are refused: the sum must "
            f"include this client, {masking.threshold(len(keys))} clients at least, and the server "
            "may name none twice."
        )
    rows = [bytes(masking.SHARE_BYTES)] * len(keys)
    ciphertexts = _sent(client.message, protocol.SHARES)
    for other in (*summed, *dropped):
        try:
            plaintext = decrypt(keys[other], ciphertexts[other].tobytes())
        except InvalidToken:
            continue  # the server finds that it is missing
        source, target, of_seed, of_key = share_keys_plaintext_separate(plaintext)
        share = of_seed if other in summed else of_key
        if (source, target, len(share)) == (other, position, masking.SHARE_BYTES):
            rows[other] = share
    return protocol.with_arrays({protocol.SHARES: masking.as_rows(rows)})


def _is_safe(summed: list[int], dropped: list[int], position: int, count: int) -> bool:
    """Return whether a sum over these of `count` positions hides the update at one."""
    named = [*summed, *dropped]
    return (
        len(set(named)) == len(named)
        and set(named) <= set(range(count))
        and position in summed
        and len(summed) >= masking.threshold(count)
    )


def _sent(message: Message, name: str) -> np.ndarray:
    return message.content.array_records[protocol.ARRAYS][name].numpy()
