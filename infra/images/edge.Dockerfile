# The edge alone, not root: docker build -f infra/images/edge.Dockerfile -t headrace-edge .
# BASE is any Debian or Ubuntu with Python 3.11 or newer, for any processor.
ARG BASE=docker.io/library/python:3.12-slim-bookworm
FROM ${BASE} AS build
# Proton is compiled: it has no wheels for Linux.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev libssl-dev pkg-config \
    && { [ -x /usr/local/bin/python3 ] || apt-get install --yes --no-install-recommends python3-dev; } \
    && rm -rf /var/lib/apt/lists/*
COPY infra/images/build.txt infra/images/edge.txt /tmp/
# What compiles is pinned like what it compiles: pip's own environments for builds fetch it without a hash.
RUN python3 -m venv /opt/headrace \
    && /opt/headrace/bin/pip install --no-cache-dir --require-hashes -r /tmp/build.txt \
    && /opt/headrace/bin/pip install --no-cache-dir --no-build-isolation --require-hashes -r /tmp/edge.txt
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY headrace /src/headrace
COPY edge /src/edge
RUN /opt/headrace/bin/pip install --no-cache-dir --no-build-isolation --no-deps /src \
    && /opt/headrace/bin/python -m pip uninstall --yes --quiet setuptools pip

FROM ${BASE}
COPY --from=build /opt/headrace /opt/headrace
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin headrace \
    && install --directory --owner=headrace --group=headrace --mode=0700 /var/lib/headrace
USER headrace
ENV PATH=/opt/headrace/bin:$PATH PYTHONDONTWRITEBYTECODE=1
VOLUME /var/lib/headrace
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9187/health/live', timeout=5)"]
ENTRYPOINT ["headrace"]
