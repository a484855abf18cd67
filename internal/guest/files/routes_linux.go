package files

import (
	"net/http"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Routes adds the procedures and the paths of files.
func (s *Server) Routes(mux *http.ServeMux) {
	mux.HandleFunc(guestapi.FSStat, rpc.Unary(s.stat))
	mux.HandleFunc(guestapi.FSListDir, rpc.Unary(s.listDir))
	mux.HandleFunc(guestapi.FSMakeDir, s.changes(rpc.Unary(s.makeDir)))
	mux.HandleFunc(guestapi.FSMove, s.changes(rpc.Unary(s.move)))
	mux.HandleFunc(guestapi.FSRemove, s.changes(rpc.Unary(s.remove)))
	mux.HandleFunc(guestapi.FSWatchDir, rpc.Streaming(s.watchDir))
	mux.HandleFunc(guestapi.FSCreateWatcher, rpc.Unary(s.createWatcher))
	mux.HandleFunc(guestapi.FSGetWatcherEvents, rpc.Unary(s.getWatcherEvents))
	mux.HandleFunc(guestapi.FSRemoveWatcher, rpc.Unary(s.removeWatcher))
	mux.HandleFunc(guestapi.PathFiles, s.contents)
	mux.HandleFunc("POST "+guestapi.PathFiles, s.changes(s.contents))
	mux.HandleFunc("PUT "+guestapi.PathFiles, s.changes(s.contents))
	mux.HandleFunc("GET "+guestapi.PathPreviews, s.previewFile)
	mux.HandleFunc(guestapi.PathEdits, s.changes(rpc.Unary(s.edit)))
	mux.HandleFunc(guestapi.PathSearches, rpc.Unary(s.search))
	mux.HandleFunc(guestapi.PathGlobs, rpc.Unary(s.glob))
	mux.HandleFunc(guestapi.PathLayer, s.layer)
	mux.HandleFunc("PUT "+guestapi.PathLayer, s.changes(s.layer))
	mux.HandleFunc("POST "+guestapi.PathPack, s.pack)
	mux.HandleFunc("POST "+guestapi.PathPackChanged, s.packChanged)
}
