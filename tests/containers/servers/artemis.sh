#!/bin/bash
# What the official image does that docker-compose.yml relies on: an instance at the first start, with the files of etc-override.
set -euo pipefail
cd /var/lib/artemis-instance
if [ ! -f etc/broker.xml ]; then
    /opt/activemq-artemis/bin/artemis create --user artemis --password artemis --silent --no-autotune --no-web --java-memory 512M .
    cp etc-override/* etc/
fi
exec bin/artemis "$@"
