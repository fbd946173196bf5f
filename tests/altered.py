"""What a client that is not ours may send: a survey or an agreement with other fields."""

import json

from fl_core.json_records import to_json


def altered(record, **fields):
    """Return the message's entry of a record, some of whose fields are others."""
    return {record.entry: json.dumps(json.loads(to_json(record)) | fields)}
