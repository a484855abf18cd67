//go:build embedguest

package guestbin

import _ "embed"

//go:embed glovebox-guest
var program []byte
