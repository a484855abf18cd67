// Package guest is the program of the agent that runs as the first process of
// every sandbox. It has the configuration, the commands, the connections, and
// the ports of the sandbox. The packages below it serve the rest of the protocol
// of package guestapi: process, files and contexts have the procedures, and
// picture makes previews for both files and contexts. Packages account, procfs,
// regular and rpc are below all of them.
//
// A [Guest] owns its process: it reaps every child, adopts orphans, and assumes
// that no other code in the process starts programs. So there is one Guest per
// process, and tests run it in a process of its own. [New] makes a Guest, which
// serves any number of connections. Close ends it and kills every process that
// it started. [Main] is the whole program, for cmd/glovebox-guest and for
// programs that embed it.
//
// The guest trusts its clients (the host, or root inside the sandbox) and
// nothing else. The user's programs run as another user. They cannot open the
// guest's socket, and can neither signal nor trace the guest. Every buffer that
// the guest holds is bounded.
//
// The guest runs on Linux only. On other systems Main prints an error.
package guest
