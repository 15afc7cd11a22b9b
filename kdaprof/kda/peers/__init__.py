"""The peers: other implementations of KDA as paths of the `kda` workload, called as their own users call them.

A peer is never chosen by the gate; it is measured beside our paths, under the same checks. Importing this package
imports neither torch nor a peer.
"""

from __future__ import annotations

from kdaprof.kda.peers.facts import PEERS, PeerFacts

__all__ = ["PEERS", "PeerFacts"]
