# In place of docker.io/apache/kafka:4.2.1 where no image registry is reached: the same release's jars, mounted at /from.
ARG BASE
FROM ${BASE}
RUN mkdir -p /opt/kafka && cp -r /from /opt/kafka/libs && useradd --uid 1000 --user-group --no-create-home appuser \
    && install --directory --owner=appuser --group=appuser /var/lib/kafka/data
COPY kafka.py /opt/kafka/run.py
USER appuser
VOLUME /var/lib/kafka/data
ENTRYPOINT ["python3", "/opt/kafka/run.py"]
