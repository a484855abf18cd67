// Package account has the users of a sandbox: it finds them in /etc/passwd and
// /etc/group, and runs functions with their rights. The sandbox can change both
// files, so their size and their lines are bounded.
//
// Only the packages of the guest import it. [New] makes the [Accounts] of a
// guest, which live as long as the guest. The lock of Accounts is held while the
// files are read, and no other lock is taken meanwhile.
package account
