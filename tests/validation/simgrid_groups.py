"""Two groups of flows and a single one on a shared link, in SimGrid: when each flow ends.

Usage: simgrid_groups.py MODEL, with SimGrid's Python bindings (Debian: python3-simgrid). The figures
stand in tests/simulator/engine/simgrid_test.cpp, which plays the same flows. MODEL: CM02 is max-min
sharing alone; LV08 also takes 3 % of every link for headers.
"""
import sys

from simgrid import Actor, Comm, Engine, LinkInRoute, NetZone, this_actor

GB = 1e9
# name, start in s, bytes, links besides the shared one
FLOWS = (
    [(f"a{i}", 0.0, 10 * GB, "card") for i in range(4)]
    + [(f"b{i}", 0.5, 4 * GB, "slow") for i in range(2)]
    + [("c0", 1.0, 20 * GB, None)]
)


def run(engine, name, start, size, source, destination):
    this_actor.sleep_for(start)
    Comm.sendto(source, destination, int(size))
    print(f"{name} {engine.clock:.6f}")


def main(model):
    engine = Engine(["groups", f"--cfg=network/model:{model}", "--cfg=network/TCP-gamma:0",
                     "--cfg=network/crosstraffic:0"])
    zone = NetZone.create_full_zone("zone")
    shared = zone.create_link("shared", 25 * GB).seal()
    slow = zone.create_link("slow", 4 * GB).seal()
    for name, start, size, extra in FLOWS:
        source = zone.create_host(name + "-source", 1 * GB).seal()
        destination = zone.create_host(name + "-destination", 1 * GB).seal()
        links = [LinkInRoute(shared)]
        if extra == "slow":
            links.append(LinkInRoute(slow))
        elif extra == "card":
            links.append(LinkInRoute(zone.create_link(name + "-card", 12.5 * GB).seal()))
        zone.add_route(source.netpoint, destination.netpoint, None, None, links, False)
        Actor.create(name, source, run, engine, name, start, size, source, destination)
    zone.seal()
    engine.run()


main(sys.argv[1])
