// Package webmodule has the scripts that pages of the dashboard and the view of results
// in MCP clients share. They set data of sandboxes as text only.
package webmodule

import _ "embed"

// Chart draws charts from data, and Table makes tables sortable. Both are ES modules
// without imports.
var (
	//go:embed chart.js
	Chart string
	//go:embed table.js
	Table string
)
