"""A ring all-reduce on a star of hosts in SimGrid: python3 simgrid_ring.py RANKS BYTES prints microseconds.

Run by ``tests/bench/simulate.py`` with the system's Python, where Debian's python3-simgrid is installed.
"""

import sys

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone

IDEAL = [
    "--cfg=network/model:CM02", "--cfg=network/latency-factor:1", "--cfg=network/bandwidth-factor:1",
    "--cfg=network/weight-S:0", "--cfg=network/TCP-gamma:0", "--cfg=network/crosstraffic:0",
    "--log=root.thresh:critical",
]  # fmt: skip


def star(ranks: int) -> list:
    """Hosts with a cable of 12.5 GB/s per direction and 0.5 us each."""
    zone = NetZone.create_star_zone("star")
    hosts = []
    for number in range(ranks):
        host = zone.create_host(f"h{number}", 1e9)
        cable = zone.create_split_duplex_link(f"l{number}", 12.5e9)
        cable.set_latency(0.5e-6)
        cable.seal()
        zone.add_route(host.netpoint, None, None, None, [LinkInRoute(cable, LinkInRoute.Direction.UP)], True)
        hosts.append(host)
    zone.seal()
    return hosts


def rank(me: int, ranks: int, size: int) -> None:
    """Send a chunk to the right and receive one from the left, 2(P-1) times."""
    for _ in range(2 * (ranks - 1)):
        sending = Mailbox.by_name(str((me + 1) % ranks)).put_async("chunk", size)
        Mailbox.by_name(str(me)).get()
        sending.wait()


def main() -> None:
    """Run the simulation."""
    engine = Engine([sys.argv[0], *IDEAL])
    ranks, nbytes = int(sys.argv[1]), int(sys.argv[2])
    for me, host in enumerate(star(ranks)):
        Actor.create(str(me), host, rank, me, ranks, nbytes // ranks)
    engine.run()
    print(Engine.clock * 1e6)


if __name__ == "__main__":
    main()
