# The bridge alone, not root: docker build -f infra/images/bridge.Dockerfile -t headrace-bridge .
FROM python:3.12-slim-bookworm AS build
COPY infra/images/bridge.txt /tmp/requirements.txt
RUN python -m venv /opt/headrace && /opt/headrace/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
COPY pyproject.toml README.md LICENSE /src/
COPY headrace /src/headrace
COPY bridge /src/bridge
RUN /opt/headrace/bin/pip install --no-cache-dir --no-deps /src

FROM python:3.12-slim-bookworm
COPY --from=build /opt/headrace /opt/headrace
COPY infra/images/alive.py /opt/headrace/alive.py
RUN useradd --system --uid 10001 headrace && mkdir -p /var/lib/headrace /certs && chown headrace /var/lib/headrace /certs
USER headrace
ENV PATH=/opt/headrace/bin:$PATH
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s CMD ["python", "/opt/headrace/alive.py", "http://127.0.0.1:9188/health/live"]
ENTRYPOINT ["headrace"]
