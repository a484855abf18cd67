// Package imagebuild builds images from Dockerfiles without a container engine.
// It runs their programs in a sandbox of the base image, and makes a layer from
// the changes. For container engines, which build by themselves, it packs the
// build context.
//
// It supports a part of the language and refuses the rest by name. The supported
// instructions are FROM (once), ARG, RUN, COPY (with --chown and --chmod), ENV,
// WORKDIR, USER, LABEL, EXPOSE, ENTRYPOINT and CMD.
//
// Packages app and template import it. A [Build] follows a Dockerfile on a
// [Bench]; package template gives its own steps to a Bench. Both own a sandbox and
// stop it on every path. A failed build leaves nothing.
package imagebuild
