package guestlink

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// SecretEnv returns additional variables for a sandbox with these secrets: their
// placeholders, and the variables that make programs trust the network's
// authority.
func SecretEnv(secrets []sandbox.Secret) map[string]string {
	env := map[string]string{}
	for _, s := range secrets {
		if !s.Always {
			env[s.Name] = s.Placeholder()
		}
	}
	if len(secrets) > 0 {
		for name, value := range TrustEnv() {
			env[name] = value
		}
	}
	return env
}
