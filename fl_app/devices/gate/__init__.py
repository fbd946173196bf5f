"""The gate in front of the SuperLink: devices reach what SuperNodes need, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
for no password and starts apps on all devices. So the SuperLink listens on an address that only its
own machine reaches. On a network, nginx (deploy/nginx.conf) accepts the devices' connections, ends
slow ones and limits how many an address has. It passes their requests to this reverse proxy, which

- refuses requests whose head no key has signed (`callers`);
- passes on nothing but a device's own replies (`pushes`), no larger than a model (`sizes`);
- gives every device a share of its memory and of the SuperLink's time;
- asks the SuperLink a few things at a time, and answers 503 for its 500, after which SuperNodes
  try again instead of stopping for good;
- holds a device's question until there is an answer (`waiting`).
"""
