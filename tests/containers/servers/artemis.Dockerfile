# In place of docker.io/apache/activemq-artemis:2.40.0 where no image registry is reached: the same release, mounted at /from.
ARG BASE
FROM ${BASE}
RUN cp -r /from/apache-artemis-* /opt/activemq-artemis && useradd --uid 1001 --user-group --no-create-home artemis \
    && install --directory --owner=artemis --group=artemis /var/lib/artemis-instance
COPY artemis.sh /docker-run.sh
RUN chmod 0755 /docker-run.sh
USER artemis
WORKDIR /var/lib/artemis-instance
VOLUME /var/lib/artemis-instance
ENTRYPOINT ["/docker-run.sh", "run"]
