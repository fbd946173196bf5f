"""The gate: a reverse proxy that passes devices' requests to the SuperLink, and nothing else.

Flower's SuperLink serves the Fleet API of devices on the same port as the Control API, which asks
for no password and starts apps on all devices. So only its own machine reaches the SuperLink, and
nginx (deploy/nginx.conf) accepts and limits the devices' connections. The gate, between them, asks
for signatures (`callers`), checks and bounds what devices push (`pushes`, `sizes`), limits what one
device may use, and sends the SuperLink a few requests at a time. It answers 503 for the SuperLink's
500: after that SuperNodes try again instead of stopping for good.
"""
