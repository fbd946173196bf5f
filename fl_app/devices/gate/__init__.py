"""The gate before the SuperLink: devices reach what SuperNodes need, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
nobody who they are and starts apps on all devices. So the SuperLink stays on an address that only
its own machine reaches, and this reverse proxy stands on the open one.

The SuperLink also reads the whole of what it is sent before it checks a signature, takes messages
in anybody's name from whomever it knows, and answers 500 when its database is locked, at which
SuperNodes stop for good. So the gate

- turns away who has not signed the head of a request (`callers`);
- gives every caller a share of itself, strangers together a small one, and evicts the oldest of
  the connections that no known device has used (`connections`);
- reads a body to its end before it calls the SuperLink, and bothers it with none that does not
  arrive;
- passes on nothing but a device's own replies (`pushes`);
- asks the SuperLink a few things at a time, and answers 503 for 500, after which SuperNodes try
  again.

What remains are floods: whoever opens connections, or sends, faster than these bounds let go of
them keeps devices waiting. That is for a firewall, which lets in the addresses of the sites alone.
"""
