package guest

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// resolvConf names the DNS servers of programs.
const resolvConf = "/etc/resolv.conf"

// useResolvers sets the DNS servers of programs to a comma-separated list of
// addresses. An empty list changes nothing.
func useResolvers(addresses string) error {
	if addresses == "" {
		return nil
	}
	text, err := resolverText(addresses)
	if err != nil {
		return err
	}
	// In some images it is a link to a file that does not exist in the sandbox.
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
	// Queries go through a local socket, which loses none. So a query without an
	// answer was refused, and more attempts would not help.
	b.WriteString("options timeout:5 attempts:2\n")
	return b.String(), nil
}
