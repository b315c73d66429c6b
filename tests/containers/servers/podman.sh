#!/bin/bash
# podman for podman-compose where podman is older than 4.6: it waits for health by asking, and starts no dependency that has ended.
arguments=()
for argument in "$@"; do
    case $argument in --requires=*) ;; *) arguments+=("$argument") ;; esac
done
set -- "${arguments[@]}"
if [ "$1" = --version ]; then
    echo "podman version 4.6.0"
elif [ "$1" = wait ] && [ "$2" = --condition=healthy ]; then
    for container in "${@:3}"; do
        until podman healthcheck run "$container" > /dev/null 2>&1; do sleep 1; done
    done
else
    exec podman "$@"
fi
