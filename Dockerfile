# The server, from this checkout:
#	docker build -t glovebox .
# Where modules or packages come through a proxy, the usual build arguments do
# (HTTPS_PROXY, GOPROXY). See deploy/compose.yaml for how it is run.
ARG GO=golang:1.26-bookworm
ARG BASE=gcr.io/distroless/static-debian12:nonroot
FROM ${GO} AS build
WORKDIR /src
ENV CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS=-buildvcs=false
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=container
RUN make build VERSION=${VERSION}

FROM ${BASE}
COPY --from=build /src/bin/glovebox /usr/local/bin/glovebox
# Sandboxes are made by an engine outside: in here is no kernel to seal any with.
ENV GLOVEBOX_DRIVER=docker \
	GLOVEBOX_LISTEN=0.0.0.0:8080 \
	GLOVEBOX_STATE_DIR=/var/lib/glovebox
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/glovebox"]
CMD ["serve"]
