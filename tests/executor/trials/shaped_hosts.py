"""Hosts of their own on one machine: network namespaces, joined by a switch whose ports are shaped.

Needs root, iproute2 and Open MPI. Every host has its own address and host name; programs start on
them as on any cluster, only that `ip netns exec` takes the place of ssh.
"""

import json
import os
import shutil
import subprocess
import tempfile

SUBNET = "10.99.{host}.{i}"


def missing():
    """Why hosts cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "tc", "mpirun", "unshare"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    probe = f"sp{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode != 0:
        return "cannot make network namespaces: " + made.stderr.strip()
    subprocess.run(["ip", "netns", "del", probe], check=True)
    return ""


class ShapedHosts:
    """`count` hosts with one port of `rate` ("1gbit") each, both directions."""

    def __init__(self, count, rate):
        self.count = count
        self.rate = rate
        self.prefix = f"sp{os.getpid() % 100000}"
        self.octet = os.getpid() % 200 + 20

    def space(self, i):
        return f"{self.prefix}h{i}"

    def address(self, i):
        return SUBNET.format(host=self.octet, i=i + 1)

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        try:
            self._make()
        except Exception:
            self.__exit__()
            raise
        return self

    def _make(self):
        hub = self.prefix + "hub"
        self._ip("netns", "add", hub)
        self._ip("-n", hub, "link", "add", "br0", "type", "bridge")
        self._ip("-n", hub, "link", "set", "br0", "up")
        for i in range(self.count):
            space, port = self.space(i), f"{self.prefix}p{i}"
            self._ip("netns", "add", space)
            self._ip("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
            self._ip("link", "set", port, "netns", hub)
            self._ip("-n", hub, "link", "set", port, "master", "br0", "up")
            self._ip("-n", space, "addr", "add", self.address(i) + "/24", "dev", "eth0")
            self._ip("-n", space, "link", "set", "eth0", "up")
            self._ip("-n", space, "link", "set", "lo", "up")
            # both directions: what leaves the host, and what the switch sends to it
            for where, device in ((space, "eth0"), (hub, port)):
                subprocess.run(["ip", "netns", "exec", where, "tc", "qdisc", "add", "dev", device,
                                "root", "tbf", "rate", self.rate, "burst", "128k", "latency",
                                "20ms"], check=True)
        self.agent = os.path.join(self.folder.name, "agent")
        cases = "".join(f"  {self.address(i)}) space={self.space(i)} ;;\n"
                        for i in range(self.count))
        with open(self.agent, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\ncase $1 in\n" + cases + "  *) exit 1 ;;\nesac\nshift\n"
                      'exec ip netns exec $space unshare --uts sh -c '
                      "'hostname '$space'; exec sh -c \"$*\"' agent \"$@\"\n")
        os.chmod(self.agent, 0o755)

    def __exit__(self, *_):
        names = [self.space(i) for i in range(self.count)] + [self.prefix + "hub"]
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        self.folder.cleanup()

    def settings(self):
        """What Open MPI has to be told of these hosts."""
        network = SUBNET.format(host=self.octet, i=0) + "/24"
        return {"plm_rsh_agent": self.agent, "plm_rsh_no_tree_spawn": "1", "pml": "ob1",
                "btl": "tcp,self", "btl_tcp_if_include": network, "oob_tcp_if_include": network,
                "mpi_yield_when_idle": "1"}

    def on_first_host(self, command, timeout=300, **environment):
        words = " ".join(_quoted(w) for w in command)
        return subprocess.run(
            ["ip", "netns", "exec", self.space(0), "unshare", "--uts", "sh", "-c",
             f"hostname {self.space(0)}; exec {words}"],
            capture_output=True, text=True, timeout=timeout, env=dict(os.environ, **environment))

    def mpirun(self, command, hosts=None, timeout=300):
        """Runs `command` with one rank on each of the first `hosts` hosts."""
        hosts = hosts or self.count
        start = ["mpirun", "--allow-run-as-root"]
        for name, value in self.settings().items():
            start += ["--mca", name, value]
        start += ["--host", ",".join(self.address(i) for i in range(hosts)), "-n", str(hosts)]
        return self.on_first_host(start + list(command), timeout)

    def hostfile(self, hosts, ranks):
        """Path of a file that names the first `hosts` hosts with room for so many ranks each."""
        path = os.path.join(self.folder.name, "hosts")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(f"{self.address(i)} slots={ranks}\n" for i in range(hosts))
        return path

    def sent_bytes(self):
        """Bytes that have left each host, headers of Ethernet, IP and TCP included."""
        sent = []
        for i in range(self.count):
            shown = subprocess.run(["ip", "netns", "exec", self.space(i), "tc", "-s", "-j", "qdisc",
                                    "show", "dev", "eth0"], capture_output=True, text=True,
                                   check=True)
            sent.append(json.loads(shown.stdout)[0]["bytes"])
        return sent


def _quoted(word):
    return "'" + word.replace("'", "'\\''") + "'"
