package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// watchedResource is reported as changed every watchedEvery.
const (
	watchedResource = "test://watched-resource"
	watchedEvery    = time.Second
)

// anyObject is the input schema of a fixture that ignores its arguments.
const anyObject = `{"type":"object"}`

// A fixture is a tool for the conformance suite.
type fixture struct {
	name, description string
	input             string
	run               mcp.ToolHandler
}

// says returns a handler that answers with contents.
func says(contents ...mcp.Content) mcp.ToolHandler {
	return func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: contents}, nil
	}
}

func textOf(format string, a ...any) *mcp.TextContent {
	return &mcp.TextContent{Text: fmt.Sprintf(format, a...)}
}

// answer returns a result with one text.
func answer(format string, a ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{textOf(format, a...)}}
}

// samplePicture returns a PNG with one red pixel.
func samplePicture() []byte {
	return []byte("\x89PNG\r\n\x1a\n" +
		"\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde" +
		"\x00\x00\x00\x10IDATx\x9cb\xfa\xcf\xc0\x00\x08\x00\x00\xff\xff\x03\x09\x01\x02X\xb6\xd5P" +
		"\x00\x00\x00\x00IEND\xaeB`\x82")
}

// sampleSound returns a WAV file with two silent samples, 16-bit mono at 8 kHz.
func sampleSound() []byte {
	const rate, bits, channels, data = 8000, 16, 1, 4
	b := []byte("RIFF")
	b = binary.LittleEndian.AppendUint32(b, 36+data)
	b = append(b, "WAVEfmt "...)
	b = binary.LittleEndian.AppendUint32(b, 16)
	b = binary.LittleEndian.AppendUint16(b, 1)
	b = binary.LittleEndian.AppendUint16(b, channels)
	b = binary.LittleEndian.AppendUint32(b, rate)
	b = binary.LittleEndian.AppendUint32(b, rate*channels*bits/8)
	b = binary.LittleEndian.AppendUint16(b, channels*bits/8)
	b = binary.LittleEndian.AppendUint16(b, bits)
	b = append(b, "data"...)
	b = binary.LittleEndian.AppendUint32(b, data)
	return append(b, make([]byte, data)...)
}

// contentFixtures return every kind of content.
func contentFixtures() []fixture {
	picture := &mcp.ImageContent{MIMEType: "image/png", Data: samplePicture()}
	embedded := func(uri string) mcp.Content {
		return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "an embedded text"}}
	}
	return []fixture{
		{name: "test_simple_text", description: "Gives a text.", run: says(textOf("This is a simple text response for testing."))},
		{name: "test_image_content", description: "Gives an image.", run: says(picture)},
		{name: "test_audio_content", description: "Gives a sound.", run: says(&mcp.AudioContent{MIMEType: "audio/wav", Data: sampleSound()})},
		{name: "test_embedded_resource", description: "Gives a resource.", run: says(embedded("test://embedded-resource"))},
		{name: "test_multiple_content_types", description: "Gives a text, an image and a resource.",
			run: says(textOf("Multiple content types test:"), picture, embedded("test://mixed-content-resource"))},
		{name: "test_error_handling", description: "Fails.",
			run: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				res := answer("This tool intentionally returns an error for testing")
				res.IsError = true
				return res, nil
			}},
		{name: "test_streaming_elicitation", description: "Answers, and asks for nothing on the way.", run: says(textOf("nothing was asked"))},
		{name: "json_schema_2020_12_tool", description: "Has a schema with much of JSON Schema 2020-12 in it.", input: schema2020,
			run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return answer("called with %s", req.Params.Arguments), nil
			}},
		{name: "test_x_mcp_header", description: "Has an argument that is repeated in a header.",
			input: `{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"level":{"type":"integer"}}}`,
			run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return answer("called with %s", req.Params.Arguments), nil
			}},
	}
}

const schema2020 = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",` +
	`"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},` +
	`"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},` +
	`"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},` +
	`"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],` +
	`"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},` +
	`"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}`

// protocolFixtures use other parts of the protocol: logs, progress, reconnects and
// changes of lists.
func protocolFixtures(server *mcp.Server) []fixture {
	log := func(ctx context.Context, req *mcp.CallToolRequest, text string) error {
		return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: text})
	}
	return []fixture{
		{name: "test_tool_with_logging", description: "Logs three times.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for i, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
					if i > 0 {
						time.Sleep(50 * time.Millisecond)
					}
					if err := log(ctx, req, text); err != nil {
						return nil, err
					}
				}
				return answer("logged three times"), nil
			}},
		{name: "test_logging_tool", description: "Logs once, if the caller asked for logs.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return answer("logged"), log(ctx, req, "test_logging_tool ran")
			}},
		{name: "test_tool_with_progress", description: "Reports progress three times.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				for _, done := range []float64{0, 50, 100} {
					err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
						ProgressToken: req.Params.GetProgressToken(), Progress: done, Total: 100,
					})
					if err != nil {
						return nil, err
					}
					time.Sleep(50 * time.Millisecond)
				}
				return answer("%v", req.Params.GetProgressToken()), nil
			}},
		{name: "test_reconnection", description: "Closes its stream before it answers.",
			run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if req.Extra != nil && req.Extra.CloseSSEStream != nil {
					req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: 10 * time.Millisecond})
				}
				time.Sleep(100 * time.Millisecond)
				return answer("the client came back for this"), nil
			}},
		{name: "test_missing_capability", description: "Needs a client that can sample.",
			run: func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if c := req.ClientCapabilities(); c != nil && c.Sampling != nil {
					return answer("the client can sample"), nil
				}
				data, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{
					RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}},
				})
				if err != nil {
					return nil, err
				}
				return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "this needs a client that can sample", Data: data}
			}},
		{name: "test_trigger_tool_change", description: "Changes the list of tools.",
			run: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				server.AddTool(&mcp.Tool{Name: "test_added_tool", Description: "Was added.", InputSchema: json.RawMessage(anyObject)}, says(textOf("added")))
				return answer("the list of tools has changed"), nil
			}},
		{name: "test_trigger_prompt_change", description: "Changes the list of prompts.",
			run: func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				server.AddPrompt(&mcp.Prompt{Name: "test_added_prompt", Description: "Was added."}, prompt(textOf("added")))
				return answer("the list of prompts has changed"), nil
			}},
	}
}

func addResources(ctx context.Context, log *slog.Logger, server *mcp.Server) {
	give := func(c mcp.ResourceContents) mcp.ResourceHandler {
		return func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			c := c
			c.URI = req.Params.URI
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&c}}, nil
		}
	}
	server.AddResource(&mcp.Resource{Name: "static-text", URI: "test://static-text", MIMEType: "text/plain"},
		give(mcp.ResourceContents{Text: "This is the content of the static text resource."}))
	server.AddResource(&mcp.Resource{Name: "static-binary", URI: "test://static-binary", MIMEType: "image/png"},
		give(mcp.ResourceContents{Blob: samplePicture()}))
	server.AddResource(&mcp.Resource{Name: "watched-resource", URI: watchedResource, MIMEType: "text/plain"},
		give(mcp.ResourceContents{Text: "watched"}))
	server.AddResourceTemplate(&mcp.ResourceTemplate{Name: "template", URITemplate: "test://template/{id}/data", MIMEType: "application/json"},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			u, err := url.Parse(req.Params.URI)
			if err != nil {
				return nil, mcp.ResourceNotFoundError(req.Params.URI)
			}
			id := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/data")
			data, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
			if err != nil {
				return nil, err
			}
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: string(data)}}}, nil
		})
	go func() {
		tick := time.NewTicker(watchedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: watchedResource}); err != nil && ctx.Err() == nil {
					log.Warn("notify subscribers", "uri", watchedResource, "error", err)
				}
			}
		}
	}()
}

// prompt returns a handler that gives one user message for each content.
func prompt(contents ...mcp.Content) mcp.PromptHandler {
	return func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		res := &mcp.GetPromptResult{}
		for _, c := range contents {
			res.Messages = append(res.Messages, &mcp.PromptMessage{Role: "user", Content: c})
		}
		return res, nil
	}
}
