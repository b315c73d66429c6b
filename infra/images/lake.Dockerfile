# Spark's jobs, Airflow and verification, not root: docker build -f infra/images/lake.Dockerfile -t headrace-lake .
FROM python:3.12-slim-bookworm AS made
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.txt /tmp/requirements.txt
RUN python -m venv /opt/headrace && /opt/headrace/bin/pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt
COPY pyproject.toml README.md LICENSE /src/
COPY headrace /src/headrace
COPY spark_jobs /src/spark_jobs
COPY edge /src/edge
COPY bridge /src/bridge
COPY infra /src/infra
COPY dags /src/dags
RUN /opt/headrace/bin/pip install --no-cache-dir --no-deps /src \
    && cd /src && HEADRACE_JARS=/opt/headrace/jars /opt/headrace/bin/python -m infra.local.jars demo \
    && HEADRACE_JARS=/opt/headrace/jars /opt/headrace/bin/python -m infra.local.class_archives

# A broker rehearses the load whose classes are kept; the image has neither it nor any other server.
FROM python:3.12-slim-bookworm
RUN apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
COPY --from=made /opt/headrace/bin /opt/headrace/bin
COPY --from=made /opt/headrace/lib /opt/headrace/lib
COPY --from=made /opt/headrace/pyvenv.cfg /opt/headrace/pyvenv.cfg
COPY --from=made /opt/headrace/jars/spark /opt/headrace/jars/spark
COPY dags /opt/headrace/dags
COPY infra/images/alive.py /opt/headrace/alive.py
RUN useradd --system --uid 10001 --create-home headrace && mkdir -p /lake && chown headrace /lake
USER headrace
ENV PATH=/opt/headrace/bin:$PATH HEADRACE_JARS=/opt/headrace/jars
HEALTHCHECK --interval=30s --timeout=6s CMD ["python", "-c", "import spark_jobs"]
CMD ["headrace", "--help"]
