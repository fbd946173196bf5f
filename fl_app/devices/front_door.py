"""nginx before the gate: what a proxy does better than a program in Python is left to it."""

from __future__ import annotations

from fl_app.devices.gate.application import FLEET_PATHS, MOST_BYTES

NGINX_FILE = "nginx.conf"
DEVICES_PORT = 9092
GATE_PORT = 9093
"""Where the gate listens behind nginx, on 127.0.0.1."""

_CONFIGURATION = """\
# nginx before the gate (docs/devices.md), written by `fedkin certificates --server`. Yours to edit:
# it is not written again while it is here. Paths are relative to this file's folder.
#
#   nginx -e stderr -p FOLDER -c nginx.conf
#   fedkin gate --certificates FOLDER --listen 127.0.0.1:{gate_port}
#
# TLS, slow callers, connections and the length of bodies are bounded here; who signed a request,
# and what a device may send, is the gate's to say: bodies are passed on as they come, so that
# nothing unsigned is kept.

daemon off;
pid nginx.pid;
error_log stderr warn;
worker_processes auto;
worker_rlimit_nofile 8192;

events {{
    worker_connections 4096;
}}

http {{
    access_log off;
    server_tokens off;
    # Without these, nginx wants folders that only root can make.
    client_body_temp_path nginx-temp;
    proxy_temp_path nginx-temp;
    fastcgi_temp_path nginx-temp;
    uwsgi_temp_path nginx-temp;
    scgi_temp_path nginx-temp;

    # Of one address at a time: a SuperNode opens a dozen, and a site may have many behind one.
    limit_conn_zone $binary_remote_addr zone=addresses:10m;
    limit_conn addresses 200;
    limit_conn_log_level warn;

    client_header_timeout 5s;
    client_body_timeout 30s;
    send_timeout 30s;
    keepalive_timeout 15s;
    client_max_body_size {most_bytes};
    large_client_header_buffers 4 8k;

    upstream gate {{
        server 127.0.0.1:{gate_port};
        keepalive 32;
        keepalive_timeout 5s;  # the gate closes idle ones after 15
    }}

    server {{
        listen {devices_port} ssl backlog=2048;
        ssl_certificate server.crt;
        ssl_certificate_key server.key;
        ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:devices:10m;

        location / {{
            return 404;
        }}

        location ~ ^/v1/fleet/({names})$ {{
            limit_except POST {{
                deny all;
            }}
            proxy_pass https://gate;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_ssl_trusted_certificate ca.crt;
            proxy_ssl_verify on;
            proxy_ssl_name localhost;
            proxy_ssl_server_name on;
            proxy_ssl_protocols TLSv1.2 TLSv1.3;
            proxy_request_buffering off;
            # Answers are taken off the gate's hands, in memory, for those who read slowly.
            proxy_buffers 32 32k;
            proxy_buffer_size 32k;
            proxy_busy_buffers_size 64k;
            proxy_max_temp_file_size 0;
            proxy_connect_timeout 5s;
            proxy_read_timeout 180s;
            proxy_send_timeout 60s;
            proxy_next_upstream off;
        }}
    }}
}}
"""


def nginx_configuration(devices_port: int = DEVICES_PORT, gate_port: int = GATE_PORT) -> str:
    """Return nginx's configuration to stand before the gate, with the certificates in its folder.

    Devices' requests are HTTP/1.1: Flower's SuperNodes speak nothing else.
    """
    names = sorted(path.decode("ascii").rpartition("/")[2] for path in FLEET_PATHS)
    return _CONFIGURATION.format(
        devices_port=devices_port,
        gate_port=gate_port,
        most_bytes=MOST_BYTES,
        names="|".join(names),
    )
