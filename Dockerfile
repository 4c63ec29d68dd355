# The image of pgsub. docs/install/image.md has the commands to build and to run it.
#
# Stage `build` makes the environment /opt/pgsub with all that a start would fetch or make: Java,
# jars, compiled kernels, class archive. The last stage takes the folder alone, so neither the
# arguments of the build nor a compiler reach the image.

ARG BASE=debian:bookworm-slim

# hadolint ignore=DL3006
FROM ${BASE} AS base
# Debian fixes the versions of a release; a pinned revision would vanish with the next repair.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates python3 tini \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
 && groupadd --gid 10001 pgsub \
 && useradd --uid 10001 --gid pgsub --home-dir /var/lib/pgsub --shell /usr/sbin/nologin pgsub \
 && install --directory --owner pgsub --group pgsub --mode 700 /var/lib/pgsub
# Python, pip and Java trust the authorities of the base. The kernels are compiled for every
# processor of the architecture, and not for the one that builds.
ENV LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    NUMBA_CPU_NAME=generic

FROM base AS build
# An index of your own, and a Maven repository of your own: names that pip and pgsub read.
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG DEFAULT_ARTIFACT_REPOSITORY
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# The versions are those of the lock, and so are the files: each SHA-256 is compared.
RUN python3 -m venv /opt/pgsub \
 && sed --regexp-extended '/^ +--hash/d; s/ \\$//' requirements.lock > versions.txt \
 && python3 -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
print(*p["dependencies"], *(e for e in p["optional-dependencies"]["embedded"] if "jdk" in e), sep="\n")' \
    > wanted.txt \
 && /opt/pgsub/bin/pip install --quiet --no-compile --only-binary :all: --no-binary pyspark --report report.json \
    --constraint versions.txt --requirement wanted.txt \
 && python3 -c 'import json; lock = open("requirements.lock").read(); \
wrong = [e["metadata"]["name"] for e in json.load(open("report.json"))["install"] \
if e["download_info"]["archive_info"]["hashes"]["sha256"] not in lock]; \
assert not wrong, f"not the files of requirements.lock: {wrong}"'

COPY . .
# A kernel's cache names the time of the source, and an image keeps whole seconds.
RUN /opt/pgsub/bin/pip wheel --quiet --no-deps --wheel-dir dist . \
 && /opt/pgsub/bin/pip install --quiet --no-deps --no-compile dist/*.whl \
 && /opt/pgsub/bin/pip uninstall --quiet --yes setuptools pip \
 && find /opt/pgsub/lib/python3*/site-packages/workers -exec touch --date '2000-01-01' {} +

# What no start reads: tests of libraries, symbols, the state store of streaming queries, Spark's
# machine learning, Hive's own database, native code of other systems, Arrow's Flight.
# hadolint ignore=DL3003
RUN cd /opt/pgsub/lib/python3*/site-packages \
 && find . -type d -name tests -prune -exec rm -rf {} + \
 && strip --strip-unneeded llvmlite/binding/*.so zstandard/backend_c*.so grpc/_cython/*.so \
    pyroaring*.so pyarrow/libarrow.so* pyarrow/libparquet.so* pyarrow/libarrow_compute.so* \
 && rm -rf pyarrow/include pyarrow/libarrow_flight* pyarrow/_flight* zstandard/_cffi* \
    pyspark/examples \
 && cd pyspark/jars \
 && rm -f rocksdbjni-* breeze* spire* cats-kernel* algebra* spark-mllib_* arpack* lapack* blas* \
    derby* datanucleus* hive-beeline* hive-cli* hive-jdbc* hive-service-rpc* \
    ./*-windows-x86_64.jar ./*-osx-*.jar \
 && python3 -m compileall -q -j 0 /opt/pgsub/lib

RUN PATH=/opt/pgsub/bin:$PATH pgsub fetch && rm -rf /opt/pgsub/share/pgsub/ivy/cache

FROM base
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="pgsub" \
      org.opencontainers.image.description="PostgreSQL's logical-replication subscriber, writing to Iceberg tables" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/pgsub /opt/pgsub
# The volume has the data directory and, because the root may be read-only, the user's cache.
ENV PATH=/opt/pgsub/bin:$PATH \
    HOME=/var/lib/pgsub \
    PGSUB_DATA_DIR=/var/lib/pgsub/data \
    XDG_CACHE_HOME=/var/lib/pgsub/cache
USER 10001:10001
WORKDIR /var/lib/pgsub
VOLUME /var/lib/pgsub
EXPOSE 9187
# A start may take minutes; a launcher that recovers is alive.
HEALTHCHECK --interval=60s --timeout=20s --start-period=5m --retries=3 CMD ["pgsub", "health"]
# tini hands SIGTERM to the launcher alone, which stops the workers before the lake server.
ENTRYPOINT ["/usr/bin/tini", "--", "pgsub"]
CMD ["up", "/etc/pgsub/subscription.yaml"]
