"""Imports edge, bridge and headrace a second time, with stand-ins for threads, clock and queues, and without Kafka's client.

The first import, as usual, makes sure that everything of third parties is imported with the real ones. Only for a process of
its own: what is imported afterwards is the simulated code.
"""

import importlib
import os
import pkgutil
import sys
from typing import Any

from tests.simulation.polling import Wakeup
from tests.simulation.stand_ins import stand_ins

_PACKAGES = ("headrace", "edge", "bridge")
_LEFT_OUT = {"command", "doctor", "__main__"}
#: 4 GiB free, always: an edge sends how much is free, and other processes write to the same disk.
_DISK = os.statvfs_result((4096, 4096, 1 << 20, 1 << 20, 1 << 20, 0, 0, 0, 0, 255))


def load(kafka_client: dict[str, Any] | None = None) -> None:
    """Import the code under simulation; `kafka_client` replaces names of confluent_kafka."""
    os.statvfs = lambda _path: _DISK
    names = list(_modules())
    for name in names:
        importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] in _PACKAGES]:
        del sys.modules[name]
    real = {name: sys.modules[name] for name in stand_ins()}
    sys.modules.update(stand_ins())
    try:
        for name in names:
            importlib.import_module(name)
    finally:
        sys.modules.update(real)
    # As with the disk: they are in what an edge sends.
    use = sys.modules["headrace.process"].ProcessUse
    use.cpu_cores, use.memory_bytes = 0.25, 80 << 20
    for module in [module for name, module in list(sys.modules.items()) if name.split(".")[0] in _PACKAGES]:
        for attribute, value in list(vars(module).items()):
            if attribute == "Wakeup" and value.__module__ == "headrace.waiting":
                setattr(module, attribute, Wakeup)
            elif kafka_client and attribute in kafka_client and value.__class__.__module__ != "builtins.module":
                origin = getattr(value, "__module__", "")
                if str(origin).startswith(("confluent_kafka", "cimpl")):
                    setattr(module, attribute, kafka_client[attribute])


def _modules() -> list[str]:
    packages = []
    for package in _PACKAGES:
        where = importlib.import_module(package)
        packages.append(package)
        for module in pkgutil.walk_packages(where.__path__, package + "."):
            if _LEFT_OUT.isdisjoint(module.name.split(".")):
                packages += [module.name]
    return packages
