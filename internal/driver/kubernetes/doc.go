// Package kubernetes makes boxes that are Pods of a Kubernetes cluster. The server
// may run in the cluster or outside.
//
// Only package app imports it, and only it imports Kubernetes' client. [New] makes a
// Driver, which connects at the first use. Package container describes the boxes. A
// box is one Pod: an init container installs the guest's program, and the guest is
// the first process of the only other container.
//
// # Streams
//
// The Pod needs no network. All traffic of a box is one exec of the guest's relay,
// over one WebSocket through the API server. What the first process writes is not
// used: nodes keep it in log files. An attached box has a second WebSocket, attached
// to the standard input of the guest. It carries one byte, and its end ends the box. A
// box with a network has another exec, for its packets, which is made again when it ends.
//
// With [Options].Direct, the guest and its packets are reached at the Pod's address
// instead: see package direct. The order to listen, the byte of an attached box and all
// calls about Pods still go through the API server.
//
// # Confinement
//
// The Pod meets the level "restricted" of Kubernetes' Pod Security Standards: the
// guest and all programs are one user without capabilities. So a request for root
// runs as that user, and programs can end their own box. A Pod always has a network.
// The guest leaves it for a namespace of its own where the kernel permits that.
//
// # Workspaces
//
// The engine copies workspaces, or they are in a claim that Pods mount: see package
// claim. The server of workspaces is a Pod that [Driver.DialWorkspaces] starts.
//
// # State of Pods
//
// One watch for each driver follows the driver's Pods. It keeps nothing: it wakes
// the calls that wait for a Pod. A node reports later than things happen, so a
// verdict about a guest that does not answer waits for the report, in bounded time.
//
// # Locks
//
// The connection and the watch have one lock each for their fields. No two are held
// at the same time, and none during a call.
package kubernetes
