"""Whether NCCL can register memory with an RDMA device: if not, its connections fail or it uses
TCP.

Registered pages count against RLIMIT_MEMLOCK, unless the process has CAP_IPC_LOCK. A capability
that a pod adds is in effect for root alone: another user's process starts without it. So a node
needs LimitMEMLOCK in its container runtime's service, or the process must be root.
"""

import resource
from pathlib import Path

INFINIBAND = Path("/dev/infiniband")
STATUS = Path("/proc/self/status")


def why_not_registered(device: Path = INFINIBAND, status: Path = STATUS) -> str | None:
    """One sentence if there is an RDMA device and memory cannot be registered with it;
    else None.
    """
    if not device.is_dir():
        return None
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    # A limit below this is one that was never raised: usual are 64 KiB and 8 MiB. NCCL registers
    # some MiB for each channel and peer, so hundreds on a large node.
    if limit == resource.RLIM_INFINITY or limit >= (1 << 30) or _may_lock(status):
        return None
    return (
        f"RLIMIT_MEMLOCK is {limit >> 10} KiB and this process lacks CAP_IPC_LOCK, so NCCL cannot "
        f"register memory with {device}: its connections fail, or use TCP; set "
        "LimitMEMLOCK=infinity in the container runtime's service on the node, or the chart's "
        "networking.rdma.root"
    )


def _may_lock(status: Path) -> bool:
    """Whether CAP_IPC_LOCK is among the effective capabilities."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return False
    for line in lines:
        name, _, mask = line.partition(":")
        if name == "CapEff":
            # Number of CAP_IPC_LOCK (linux/capability.h)
            return bool(int(mask.strip(), 16) >> 14 & 1)
    return False
