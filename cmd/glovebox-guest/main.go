// Command glovebox-guest is the first process of every sandbox: a thin main
// for package guest. The program glovebox embeds it.
package main

import (
	"os"

	"github.com/glovebox-dev/glovebox/internal/guest"
)

func main() {
	os.Exit(guest.Run(os.Args))
}
