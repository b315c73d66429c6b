"""What docker-compose.yml relies on in the official image: properties from KAFKA_... variables, storage made once, the broker."""

import os
import subprocess
from pathlib import Path

PROPERTIES = Path("/tmp/server.properties")
JAVA = ["java", "-cp", "/opt/kafka/libs/*"]
CLUSTER = "5L6g3nShT-eMCtK--X86sw"

named = {
    name.removeprefix("KAFKA_").lower().replace("_", "."): value
    for name, value in os.environ.items()
    if name.startswith("KAFKA_")
}
PROPERTIES.write_text("".join(f"{name}={value}\n" for name, value in named.items()))
subprocess.run(
    [
        *JAVA,
        "-Xmx128m",
        "kafka.tools.StorageTool",
        "format",
        "--ignore-formatted",
        "-t",
        CLUSTER,
        "-c",
        str(PROPERTIES),
    ],
    check=True,
)
os.execvp("java", [*JAVA, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "kafka.Kafka", str(PROPERTIES)])
