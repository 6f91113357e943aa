"""Bytes on the wire: what each rank's TCP sockets have sent to each other rank, as the kernel counts them (Linux).

It shows what a *library* collective really does: a recorder sees one all_reduce, the kernel sees to whom its bytes go.
No privileges are needed. Ranks that share memory (MPI on one machine) have no sockets to count.
"""

import json
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

__all__ = ["matrix", "note", "written"]

_BYTES_RETRANSMITTED, _BYTES_SENT, _NOT_SENT = ("Q", 208), ("Q", 200), ("I", 144)
"""Offsets in ``struct tcp_info`` of linux/tcp.h (5.4 and newer)."""
_LONGEST = 256


def written() -> dict[str, int]:
    """Return the bytes this process has written to each of its TCP connections; empty where that cannot be known.

    Keys are "local|remote" addresses: the other end's key has them the other way round.
    """
    if not (hasattr(socket, "TCP_INFO") and os.path.isdir("/proc/self/fd")):
        return {}
    found = (_connection(int(name)) for name in os.listdir("/proc/self/fd"))
    return dict(pair for pair in found if pair is not None)


def _connection(descriptor: int) -> tuple[str, int] | None:
    """The key and bytes of one descriptor, None if it is no TCP connection."""
    try:
        with socket.socket(fileno=os.dup(descriptor)) as end:
            info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LONGEST)
            key = f"{end.getsockname()[:2]}|{end.getpeername()[:2]}"
    except OSError:
        return None
    if len(info) < _BYTES_RETRANSMITTED[1] + 8:
        return None
    sent, again, waiting = (_field(info, *place) for place in (_BYTES_SENT, _BYTES_RETRANSMITTED, _NOT_SENT))
    return key, sent - again + waiting


def _field(info: bytes, kind: str, offset: int) -> int:
    return struct.unpack_from(f"={kind}", info, offset)[0]


def note(path: Path, before: dict[str, int]) -> None:
    """Write down what this process has written to each connection since ``before``."""
    path.write_text(json.dumps({key: count - before.get(key, 0) for key, count in written().items()}))


def matrix(paths: Iterable[Path]) -> list[list[int]]:
    """Return bytes by sender (row) and receiver (column) from the ranks' notes; [] if a note is missing or empty."""
    notes = [json.loads(path.read_text()) if path.exists() else {} for path in paths]
    if not all(notes):
        return []
    owner = {key: rank for rank, sent in enumerate(notes) for key in sent}
    bytes_to = [[0] * len(notes) for _ in notes]
    for rank, sent in enumerate(notes):
        for key, count in sent.items():
            local, remote = key.split("|")
            peer = owner.get(f"{remote}|{local}")
            if peer is not None:
                bytes_to[rank][peer] += count
    return bytes_to
