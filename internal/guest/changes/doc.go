// Package changes finds the changes of a sandbox's files for the guest: what a run
// changed, and the differences since a run or since the files came into the sandbox.
//
// A [Tracker] looks at the working directory, the user's home, and the directories in
// which programs start. It does so before a run if files changed without one, and
// after each run. A file is read again only if its change time or another part of its
// state differs. The names of contents are Git's, so that git apply can check them.
// The contents of texts are kept in a file without a name, compressed, for the lines
// of later differences. All of this is bounded: see the constants.
//
// The tracker acts as root of the sandbox. It opens regular files only, follows no
// link, and leaves out what .gitignore files name, .git, and installed packages.
package changes
