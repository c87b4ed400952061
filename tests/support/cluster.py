"""Three nats-servers on loopback that keep every stream three times."""

import signal
from pathlib import Path

from cuscuta.embedded.nats import Nats
from cuscuta.embedded.postgres import Postgres, free_port
from tests.support import users
from tests.support.house import House
from tests.support.proxy import Proxy

SIZE = 3


class Cluster(Nats):
    """As one server; clients are told of all nodes. Routes go through `routes[i, j]`, so that a node can be cut off."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.ports = [free_port() for _ in range(SIZE)]
        self.routes = {(i, j): Proxy(self.ports[j]) for i in range(SIZE) for j in range(SIZE) if i != j}
        self.nodes: list[Nats] = []

    @property
    def url(self) -> str:
        return ",".join(node.url for node in self.nodes)

    async def connect(self) -> None:
        """Open the routes and start every node."""
        for proxy in self.routes.values():
            await proxy.__aenter__()
        for i in range(SIZE):
            routes = ", ".join(f"nats://127.0.0.1:{self.routes[i, j].port}" for j in range(SIZE) if j != i)
            cluster = f"name: three, listen: 127.0.0.1:{self.ports[i]}, no_advertise: true, routes: [{routes}]"
            extra = f'server_name: node-{i}\ncluster {{ {cluster} }}\nhttp: "127.0.0.1:-1"\n{users.conf()}'
            self.nodes.append(Nats(self.folder / f"node-{i}", free_port(), extra=extra))
            self.nodes[i].start()

    def start(self) -> None:
        """`connect` has started it."""

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def cut_off(self, i: int) -> None:
        """Nothing passes between a node and the others, and nobody is told."""
        for ends, proxy in self.routes.items():
            if i in ends:
                proxy.pause()

    def heal(self) -> None:
        for proxy in self.routes.values():
            proxy.resume()

    async def disconnect(self) -> None:
        for proxy in self.routes.values():
            await proxy.__aexit__()


class ClusterHouse(House):
    """A deployment on a cluster, with every stream kept three times."""

    def __init__(self, folder: Path, postgres: Postgres, **env: str) -> None:
        super().__init__(folder, postgres, replicas="3", **env)
        self.cluster = self.nats = Cluster(folder / "nats")

    async def __aenter__(self) -> "ClusterHouse":
        await self.cluster.connect()
        await super().__aenter__()
        return self

    async def __aexit__(self, *error) -> None:  # type: ignore[no-untyped-def]
        await super().__aexit__(*error)
        await self.cluster.disconnect()

    async def leader(self, stream: str) -> int:
        """The number of the node that leads a stream."""
        info = await (await self.bus()).broker.insist(self._info(stream))
        return int(info["cluster"]["leader"].removeprefix("node-"))

    def _info(self, stream: str):  # type: ignore[no-untyped-def]
        async def info():  # type: ignore[no-untyped-def]
            return await (await self.bus()).broker.api(f"STREAM.INFO.{stream}")

        return info

    def send(self, i: int, number: signal.Signals) -> None:
        process = self.cluster.nodes[i].process
        assert process is not None
        process.send_signal(number)

    async def healthy(self, stream: str) -> bool:
        """Whether a stream has a leader and two followers that have caught up."""
        cluster = (await (await self.bus()).broker.insist(self._info(stream)))["cluster"]
        replicas = cluster.get("replicas") or []
        return len(replicas) == SIZE - 1 and all(replica.get("current") for replica in replicas)
