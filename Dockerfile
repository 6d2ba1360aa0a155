# One image for the sweep, its clients, MLflow's server and Ray nodes: their versions then agree by construction. Engines have their own.
#
#     docker build -t REGISTRY/specsweep:TAG --build-arg REVISION="$(git rev-parse HEAD)" .
#
# The base is pinned to a patch release. To pin its bytes as well, ask the registry for the digest and build on that:
#
#     docker buildx imagetools inspect python:3.11.15-slim-bookworm
#     docker build --build-arg BASE=python:3.11.15-slim-bookworm@sha256:… …
ARG BASE=python:3.11.15-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
# The packages first: they are a gigabyte and change seldom.
COPY requirements/uv.txt requirements/build.txt requirements/image.txt requirements/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/uv.txt -r requirements/build.txt \
    && python -m venv --without-pip /opt/specsweep \
    && uv pip install --no-cache --compile-bytecode --python /opt/specsweep/bin/python --require-hashes -r requirements/image.txt
COPY pyproject.toml README.md LICENSE ./
COPY orchestrator orchestrator
COPY client client
COPY analysis analysis
COPY k8s k8s
COPY sweeps sweeps
RUN pip wheel --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir /wheels . \
    && uv pip install --no-cache --compile-bytecode --python /opt/specsweep/bin/python --no-deps /wheels/*.whl

FROM ${BASE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="specsweep" \
      org.opencontainers.image.description="Sweeps LLM engines with speculative decoding and measures every point" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0"
# libgomp1: llama.cpp's threads. wget: the probes that KubeRay gives Ray's pods. tini: signals and orphans where nobody sets a command.
# Versions are those of the base's Debian release: the archive keeps only the latest, so a pinned one is gone within weeks.
# The profile is for login shells, which set PATH anew (SC2016: it is to be expanded there, not here).
# hadolint ignore=DL3008,SC2016
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 tini wget \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10001 specsweep \
    && useradd --uid 10001 --gid 10001 --no-log-init --home-dir /home/specsweep --shell /usr/sbin/nologin specsweep \
    && install -d -o 10001 -g 0 -m 0775 /home/specsweep \
    && echo 'export PATH="/opt/specsweep/bin:$PATH"' > /etc/profile.d/specsweep.sh
COPY --from=build /opt/specsweep /opt/specsweep
ENV PATH="/opt/specsweep/bin:${PATH}" \
    HOME=/home/specsweep \
    USER=specsweep \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    RAY_USAGE_STATS_ENABLED=0 \
    DO_NOT_TRACK=true
# By number: Kubernetes cannot tell that a name is not root.
USER 10001:10001
WORKDIR /home/specsweep
ENTRYPOINT ["tini", "--", "specsweep"]
CMD ["--help"]
