# syntax=docker/dockerfile:1
# The operator, the command line and the agent in one image. distroless/cc, not static: the toolchain that
# rust-toolchain.toml pins builds for glibc, and aws-lc is C. It has certificates, no shell and no package
# manager; the time zones are in the program.
# Pin both bases by digest in a release: --build-arg RUST_IMAGE=…@sha256:… --build-arg RUNTIME_IMAGE=…@sha256:…
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-bookworm
ARG RUNTIME_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${RUST_IMAGE} AS build
# The image has this toolchain; the file rust-toolchain.toml would fetch its lint components too.
ENV RUSTUP_TOOLCHAIN=1.95.0
WORKDIR /src
COPY . .
# Without local mode: no stand-in GitHub, no SQLite.
RUN cargo build --locked --release -p runyard --no-default-features --features ec2 --bins \
    && cargo build --locked --profile agent -p runyard-agent \
    && install -D -t /out/usr/local/bin target/release/runyard target/agent/runyard-agent

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="runyard" \
      org.opencontainers.image.description="Keeps a yard of reusable EC2 machines and lends them to GitHub Actions workflows" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/ /
COPY LICENSE /usr/share/doc/runyard/LICENSE
USER 10001:10001
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/runyard"]
CMD ["operator"]
