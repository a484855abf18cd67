package config

import _ "embed"

// Sample is a commented configuration file in which every field has its
// default.
//
//go:embed sample.yaml
var Sample string
