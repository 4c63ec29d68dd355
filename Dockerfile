# The image of pgsub. docs/install/image.md has the commands to build and to run it.
#
# Stage `build` makes the environment /opt/pgsub with all that a start would fetch or make: Java,
# jars, compiled kernels, class archive. Stage `root` takes from the base what no start needs. The
# last stage is the two: neither the arguments of the build nor a compiler reach the image.

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
 && apt-get install --yes --no-install-recommends binutils default-jdk-headless python3-venv xz-utils \
 && rm -rf /var/lib/apt/lists/*
# Java SE without what windows and sound need, and without the formats of other languages.
RUN jlink --output /opt/pgsub/java --vm server --compress 2 \
      --strip-debug --no-header-files --no-man-pages \
      --add-modules java.se,jdk.charsets,jdk.crypto.ec,jdk.httpserver,jdk.jcmd,jdk.jfr,jdk.management \
      --add-modules jdk.management.agent,jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss \
      --add-modules jdk.unsupported,jdk.zipfs \
      --exclude-files '/java.desktop/lib/**'
WORKDIR /src
COPY pyproject.toml requirements.lock ./
# The versions are those of the lock, and so are the files: each SHA-256 is compared.
RUN python3 -m venv /opt/pgsub \
 && sed --regexp-extended '/^ +--hash/d; s/ \\$//' requirements.lock > versions.txt \
 && python3 -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
print(*p["dependencies"], sep="\n")' > wanted.txt \
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

ENV JAVA_HOME=/opt/pgsub/java \
    PATH=/opt/pgsub/bin:$PATH
# The kernels, the longest step: before what another list or another store changes.
RUN python -P -c 'from workers.columnar.warm import warm; warm()'

# The jars of every catalog; with WAREHOUSE the client of the store, too.
ARG WAREHOUSE=""
RUN printf 'subscriptions: {}\nlake: {catalog: {type: rest, uri: "http://localhost", warehouse: "%s"}}\n' "$WAREHOUSE" > lake.yaml \
 && pgsub fetch lake.yaml --to jars \
 && rm -rf jars /opt/pgsub/share/pgsub/ivy/cache
# What no start reads, and symbols.
# hadolint ignore=DL3059
RUN python3 docs/install/leave_out.py docs/install/left_out.txt \
      /opt/pgsub/lib/python3*/site-packages /opt/pgsub/share/pgsub/ivy/jars
# hadolint ignore=DL3003
RUN cd /opt/pgsub/lib/python3*/site-packages \
 && find grpc llvmlite numba pyarrow pyroaring*.so yaml zstandard -name '*.so*' -type f \
      -exec strip --strip-unneeded {} + \
 && python3 -m compileall -q -j 0 -x '/(numba|numpy|pandas|pygments)/' /opt/pgsub/lib

# What the four large packages import is compiled here.
RUN pgsub --help > /dev/null \
 && pgsub fetch lake.yaml \
 && xz -6 --threads=0 /opt/pgsub/share/pgsub/ivy/classes/*.jsa

FROM base AS root
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# No package manager, none of the libraries that only a package manager uses, no Perl, no texts of
# other languages. A scanner finds dpkg's list of packages.
RUN dpkg-query --show --showformat '${Package}\n' adduser apt debconf e2fsprogs gpgv 'libapt-pkg*' \
    'libext2fs*' 'libgnutls*' libhogweed6 libnettle8 libp11-kit0 libseccomp2 libtasn1-6 libxxhash0 \
    logsave perl-base | xargs dpkg --purge --force-all \
 && rm -rf /usr/lib/*/gconv /usr/lib/python3*/pydoc_data /usr/lib/python3*/test \
    /usr/share/doc /usr/share/i18n /usr/share/info /usr/share/locale /usr/share/man \
    /var/cache/* /var/lib/apt /var/lib/dpkg/*-old /var/log/*

# From nothing: what a stage removes is in the layers below the stage.
FROM scratch
# hadolint ignore=DL3067
COPY --from=root / /
ENV LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    NUMBA_CPU_NAME=generic
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="pgsub" \
      org.opencontainers.image.description="PostgreSQL's logical-replication subscriber, writing to Iceberg tables" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/pgsub /opt/pgsub
# The volume has the data directory and, because the root may be read-only, the user's cache.
ENV PATH=/opt/pgsub/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/pgsub/java \
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
