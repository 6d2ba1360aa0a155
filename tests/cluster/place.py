"""What all pods of a kubelet share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cluster.disks import Disks
from cluster.events import Events
from cluster.images import Images
from cluster.network import Network
from cluster.rest import Rest
from cluster.service_names import ServiceNames


@dataclass(frozen=True)
class Pace:
    """Seconds between tries; a kubelet's own are longer."""

    pull_s: float = 0.5
    mount_s: float = 1.0
    config_s: float = 1.0
    restart_s: float = 1.0


@dataclass(frozen=True)
class Place:
    rest: Rest
    network: Network
    images: Images
    names: ServiceNames
    disks: Disks
    events: Events
    folder: Path
    api: tuple[str, int]  # the API server's address and port
    faults: list[BaseException]  # of the kubelet itself, for whoever runs it
    pace: Pace = field(default_factory=Pace)
