package network

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// openLink returns a link whose frames are the packets of a socket. The channel
// is closed when the other end of the socket is closed. The caller keeps the
// socket open while the link is used. With sums, packets get the checksums that a
// kernel at the other end checks.
func openLink(fd int, sums bool) (stack.LinkEndpoint, <-chan struct{}, error) {
	closed := make(chan struct{})
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{fd},
		MTU:                MTU,
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(GatewayMAC),
		PacketDispatchMode: fdbased.RecvMMsg,
		// The packets stay in memory, so none can be damaged on the way.
		RXChecksumOffload: true,
		TXChecksumOffload: !sums,
		ClosedFunc:        func(tcpip.Error) { close(closed) },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open link: %w", err)
	}
	return link, closed, nil
}
