"""The gate: a reverse proxy that passes devices' requests to the SuperLink, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
for no password and starts apps on all devices. So the SuperLink listens on an address that only its
own machine reaches. On a network, nginx (deploy/nginx.conf) accepts the devices' connections, ends
slow ones and limits how many an address has. The gate, behind it,

- refuses requests whose head no key has signed (`callers`);
- passes on nothing but a device's replies (`pushes`), no larger than a model (`sizes`);
- limits the memory and the SuperLink's time that one device may use;
- sends the SuperLink a few requests at a time, and answers 503 for its 500, after which SuperNodes
  try again instead of stopping for good;
- holds a device's request until there is an answer (`waiting`);
- logs the first refusal of an address and then counts them (`refusals`).
"""
