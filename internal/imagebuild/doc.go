// Package imagebuild builds images of Dockerfiles without an engine: it runs
// their programs in a sandbox of the base image, and makes a layer of what they
// changed there. For engines, which build by themselves, it packs what they build
// from.
//
// It knows a part of the language and refuses the rest by name. The known
// instructions are FROM (once), ARG, RUN, COPY (with --chown and --chmod), ENV,
// WORKDIR, USER, LABEL, EXPOSE, ENTRYPOINT and CMD.
//
// Only package app imports it. A [Build] owns its sandbox and stops it on every
// path; nothing is kept of a build that failed.
package imagebuild
