package mcpserver

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/argument"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// resultsTemplate is the URI template of one form of a run's result.
const resultsTemplate = "run://{id}/results/{number}/{+type}"

// readResultResource reads one form of a result.
func (s *Server) readResultResource(ctx context.Context, p sandbox.Principal, u *url.URL) ([]*mcp.ResourceContents, error) {
	rest := strings.TrimPrefix(u.Path, "/results/")
	number, mime, _ := strings.Cut(rest, "/")
	none := sandbox.Errorf(sandbox.NotFound, "there is no result %s", argument.Show(rest))
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 {
		return nil, none
	}
	res, err := s.engine.Results(ctx, p, u.Host)
	if err != nil {
		return nil, err
	}
	if n >= len(res.Results) || res.Results[n].Data[mime] == nil {
		return nil, none
	}
	value := res.Results[n].Data[mime]
	c := &mcp.ResourceContents{MIMEType: mime}
	switch {
	case sandbox.IsJSON(mime):
		c.Text = string(value)
	case sandbox.IsPicture(mime) || mime == "application/pdf":
		data, ok := res.Results[n].Base64(mime)
		if c.Blob, err = data.Decode(); err != nil || !ok {
			return nil, none
		}
	case json.Unmarshal(value, &c.Text) != nil:
		return nil, none
	}
	return []*mcp.ResourceContents{c}, nil
}
