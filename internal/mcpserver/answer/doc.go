// Package answer renders the results of tools: for programs as structuredContent, and
// for models as content. Both halves say the same.
//
// Only package mcpserver imports it. It reads nothing: its caller passes the run, its
// output and its results.
package answer
