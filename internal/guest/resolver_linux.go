package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// resolvConf is where programs look for the DNS servers to ask.
const resolvConf = "/etc/resolv.conf"

// useResolvers has programs ask the DNS servers at addresses, with commas
// between; with none it changes nothing.
func useResolvers(addresses string) error {
	if addresses == "" {
		return nil
	}
	text, err := resolverText(addresses)
	if err != nil {
		return err
	}
	// An image may have a link there, to a file that only its system has.
	if err := os.Remove(resolvConf); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("set DNS servers: %w", err)
	}
	if err := os.WriteFile(resolvConf, []byte(text), 0o644); err != nil {
		return fmt.Errorf("set DNS servers: %w", err)
	}
	return nil
}

func resolverText(addresses string) (string, error) {
	var b strings.Builder
	for text := range strings.SplitSeq(addresses, ",") {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return "", fmt.Errorf("set DNS servers: %w", err)
		}
		fmt.Fprintf(&b, "nameserver %s\n", a)
	}
	// They are at the other end of a socket: what is lost was refused.
	b.WriteString("options timeout:5 attempts:2\n")
	return b.String(), nil
}
