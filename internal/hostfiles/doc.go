// Package hostfiles reads and writes files of this machine for local clients, and
// copies them from and to sandboxes.
//
// Package app opens the allowed [Directories], which live until Close, and makes
// a [Copier] for MCP clients on stdio and for the command line. The Copier
// reaches sandboxes through [Sandboxes] only. Paths come from models and are
// untrusted. The package resolves them here and opens them through package
// safepath, so no "..", no link and no race leads out.
package hostfiles
