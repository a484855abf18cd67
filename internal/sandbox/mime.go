package sandbox

import "strings"

// MIMEText is the type of a value's text.
const MIMEText = "text/plain"

// MIMEChart is the type of a plot as data, in E2B's form.
const MIMEChart = "application/vnd.glovebox.chart+json"

// IsJSON reports whether the values of a MIME type are JSON, as opposed to text or
// base64.
func IsJSON(mime string) bool {
	return mime == "application/json" || strings.HasSuffix(mime, "+json")
}
