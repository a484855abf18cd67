package guest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/guest/picture"
	"github.com/glovebox-dev/glovebox/internal/guest/sudo"
)

// Run is [Main] with the program's name first in argv. By the name "sudo", it is that
// command.
func Run(argv []string) int {
	if IsSudo(argv) {
		return sudo.Main(sudo.DefaultSocket, argv[1:])
	}
	return Main(argv[1:])
}

// IsSudo reports whether the arguments are those of the command sudo, whose file is
// a link to the guest's program.
func IsSudo(argv []string) bool { return filepath.Base(argv[0]) == sudo.Name }

// Main is the guest's program; args are without the program's name. It returns
// the exit status. The commands are:
//
//	serve [flags]       run the guest; the default command
//	connect [--socket]  hand descriptor 0, a stream socket, to the guest
//	relay [--socket]    copy between descriptors 0 and 1 and the guest; with
//	                    --tunnel, the process that carries its packets
//	direct [--socket]   pass an order of descriptor 0 on, to listen at the address of
//	                    the Pod; the answer goes to 1
//	picture TYPE        shrink the picture at descriptor 0; the answer goes to 1
//	picture TYPE WIDTH  turn it into sixels of at most that width
//	hostname NAME       set the hostname of the box
//	tunnel [flags]      make an interface whose packets use descriptors 0 and 1
//	install-guest [--resolver ADDRESS,...] DIR [MODE:DIR]...
//	                    copy this program, and files of a box's users, to the first
//	                    DIR; make a directory of its own user's in each other
//
// The flags of serve are:
//
//	--socket PATH            listen at this socket
//	--conn-fd N              serve this connected socket at once
//	--nproc N                the limit on processes
//	--cpus N                 processors that programs may use
//	--maxprocs N             processors that the guest itself uses at once
//	--own DIR,...            make these directories and give them to the user
//	--resolver ADDRESS,...   the DNS servers of programs
//	--self                   run everything as the guest's own user
//	--stdio                  serve standard input and output as a connection
//	--leased                 end when the standard input ends; without --stdio, also
//	                         if its first byte does not come soon
//	--leave-network          leave the network for a namespace with a loopback only,
//	                         if the kernel permits that; listen in the first one,
//	                         when "direct" says so
//	--tunnel                 with --leave-network: have an interface there as well
//	--mtu N, --address PREFIX...
//	                         what that interface has
//	--hidden                 let no program of the same user trace the guest
//	--lease DURATION         take leases, and end when the lease is over; end after
//	                         this time if no lease comes, unless it is 0
//	--threads N              threads to make at the start
//	--nofile N               the limit on open files of a process; no core dumps
//	--image-env              give programs the guest's own environment
//	--image-user USER        the user that the image names for programs
//	--image-dir DIR          the directory in which the image has programs start
//	--no-setid               let no file get a set-user-ID or set-group-ID bit
//	--interpreter ADDRESS    serve E2B's code interpreter to programs there
//	--workspaces DIR         serve the workspaces in this directory
//	--sudo DIR               make the command sudo there for clients of E2B's protocol
//	--sudo-socket PATH       the socket of that command
//
// On the connection of --stdio the other end speaks first. Serve ends at SIGTERM
// or SIGINT, and kills all processes that it started.
func Main(args []string) int {
	command := "serve"
	if len(args) > 0 && len(args[0]) > 0 && args[0][0] != '-' {
		command, args = args[0], args[1:]
	}
	run := map[string]func([]string) error{"serve": serve, "connect": connectMain, "relay": relayMain, "direct": directMain, "picture": picture.Main, "tunnel": tunnelMain, "install-guest": installMain, "hostname": hostnameMain}[command]
	err := fmt.Errorf("unknown command %q", command)
	if run != nil {
		err = run(args)
	}
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "glovebox-guest:", err)
		return 1
	}
	return 0
}
