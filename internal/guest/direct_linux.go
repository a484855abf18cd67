package guest

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/glovebox-dev/glovebox/internal/guest/direct"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// The server of a sandbox in a Pod may connect to the address of the Pod. The process
// that starts in the network of the Pod listens there: the one that then starts the guest
// in another network, or the guest itself, if it has to stay. See [order.leaveNetwork].
//
// The server orders that by the command "direct", which it executes in the Pod. The
// command passes the order on by a socket without a file. Such a socket belongs to a
// network, so programs of the sandbox reach it only if the guest had to stay. They could
// then listen in the network of the Pod themselves. They are the guest's user, so they
// can end their own sandbox in any case.

// orderSocket returns the name of the socket for orders of the guest with a socket.
func orderSocket(guest string) string { return "@" + guest }

// listenDirect takes orders to listen. It needs no rights, and starts no process.
func (o *order) listenDirect() error {
	orders, err := net.ListenUnix("unix", &net.UnixAddr{Name: orderSocket(o.socket), Net: "unix"})
	if err != nil {
		return err
	}
	go direct.NewListener(func(purpose byte) (net.Conn, error) {
		switch purpose {
		case guestapi.DirectGuest:
			return dialGuest(o.socket)
		case guestapi.DirectPackets:
			return dialGuest(tunnelSocket(o.socket))
		}
		return nil, fmt.Errorf("there is nothing for the byte %d", purpose)
	}).ServeOrders(orders)
	return nil
}

// directMain passes an order from the standard input on, and the answer to the standard
// output.
func directMain(args []string) error {
	hide() // from programs, where they have the same user
	fs := flag.NewFlagSet("direct", flag.ContinueOnError)
	socket := socketFlag(fs)
	if err := fs.Parse(args); err != nil {
		return err
	}
	order, err := bufio.NewReader(io.LimitReader(os.Stdin, guestapi.MaxDirect)).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	conn, err := dialGuest(orderSocket(*socket))
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(order); err != nil {
		return fmt.Errorf("pass the order on: %w", err)
	}
	if _, err := io.Copy(os.NewFile(1, "output"), io.LimitReader(conn, guestapi.MaxDirect)); err != nil {
		return fmt.Errorf("pass the answer on: %w", err)
	}
	return nil
}
