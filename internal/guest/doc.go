// Package guest is the agent that runs as the first process of every sandbox. It
// starts processes, carries their input and output, and kills their process
// trees. It reads, writes and watches files. It speaks the protocol of package
// guestapi.
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
