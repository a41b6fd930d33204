"""A test as people write them with testcontainers: a network, a server with a published port, a client that finds it by name."""

import urllib.request

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.waiting_utils import wait_for_logs

SERVER = ["sh", "-c", "echo from-web >/tmp/index.html; echo ready; httpd -f -p 80 -h /tmp"]

with Network() as network:
    web = DockerContainer("lab:1").with_command(SERVER).with_exposed_ports(80)
    with web.with_network(network).with_network_aliases("web") as web:
        wait_for_logs(web, "ready", timeout=20)
        host, port = web.get_container_host_ip(), web.get_exposed_port(80)
        assert urllib.request.urlopen(f"http://{host}:{port}/", timeout=10).read() == b"from-web\n", (host, port)
        assert web.exec(["echo", "inside"]).output == b"inside\n"
        client = DockerContainer("lab:1").with_command(["wget", "-qO-", "http://web/"]).with_network(network)
        with client as client:
            wait_for_logs(client, "from-web", timeout=20)
