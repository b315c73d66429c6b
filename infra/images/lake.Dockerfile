# Spark's jobs, Airflow and verification, not root: docker build -f infra/images/lake.Dockerfile -t headrace-lake .
# BASE is any Debian or Ubuntu with Python 3.11 or newer, for any processor; Java 17 is added where it has none.
ARG BASE=docker.io/library/python:3.12-slim-bookworm
FROM ${BASE} AS java
RUN command -v java > /dev/null || { apt-get update && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*; }

FROM java AS build
COPY infra/images/build.txt infra/images/lake.txt /tmp/
# What compiles is pinned like what it compiles: pip's own environments for builds fetch it without a hash.
RUN python3 -m venv /opt/headrace \
    && /opt/headrace/bin/pip install --no-cache-dir --require-hashes -r /tmp/build.txt \
    && /opt/headrace/bin/pip install --no-cache-dir --no-build-isolation --require-hashes -r /tmp/lake.txt
COPY pyproject.toml README.md LICENSE /src/
COPY headrace /src/headrace
COPY spark_jobs /src/spark_jobs
COPY infra /src/infra
COPY dags /src/dags
# Jars that are mounted at /jars are used; the others are fetched.
RUN /opt/headrace/bin/pip install --no-cache-dir --no-build-isolation --no-deps /src && mkdir -p /opt/headrace/jars \
    && for of in spark compiler; do if [ -f /jars/$of/manifest.json ]; then \
        mkdir /opt/headrace/jars/$of && cp /jars/$of/*.jar /jars/$of/manifest.json /opt/headrace/jars/$of/; fi; done \
    && cd /src && export HEADRACE_JARS=/opt/headrace/jars && /opt/headrace/bin/python -m infra.local.jars lake \
    && /opt/headrace/bin/python -m infra.release.java_build file-log-store serve && rm -r /opt/headrace/jars/compiler \
    && /opt/headrace/bin/python -m pip uninstall --yes --quiet setuptools pip

FROM java
COPY --from=build /opt/headrace /opt/headrace
COPY dags /opt/headrace/dags
RUN useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin headrace \
    && install --directory --owner=headrace --group=headrace --mode=0700 /lake /airflow
USER headrace
ENV PATH=/opt/headrace/bin:$PATH HEADRACE_JARS=/opt/headrace/jars HOME=/tmp PYTHONDONTWRITEBYTECODE=1
VOLUME /lake
HEALTHCHECK --interval=30s --timeout=6s CMD ["python", "-c", "import spark_jobs"]
CMD ["headrace", "--help"]
