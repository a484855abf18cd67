package network

import (
	"fmt"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// openLink returns the link whose frames are the packets of a socket, and a
// channel that is closed when the other side is. The socket must stay open for
// as long as the link is used. With sums, packets get the checksums that a kernel
// at the other end looks at.
func openLink(fd int, sums bool) (stack.LinkEndpoint, <-chan struct{}, error) {
	closed := make(chan struct{})
	link, err := fdbased.New(&fdbased.Options{
		FDs:                []int{fd},
		MTU:                MTU,
		EthernetHeader:     true,
		Address:            tcpip.LinkAddress(GatewayMAC),
		PacketDispatchMode: fdbased.RecvMMsg,
		// Nothing on the way can damage a packet: it is one of memory.
		RXChecksumOffload: true,
		TXChecksumOffload: !sums,
		ClosedFunc:        func(tcpip.Error) { close(closed) },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open link: %w", err)
	}
	return link, closed, nil
}
