//go:build linux

package clients

import (
	"encoding/json"
	"net/http"
)

// messages serves the Messages API of Anthropic.
func (m *model) messages(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model    string
		Stream   bool
		Tools    []json.RawMessage
		Messages []struct {
			Content json.RawMessage
		}
	}
	if !m.decode(w, r, &in) {
		return
	}
	req := request{results: map[string]seen{}}
	for _, raw := range in.Tools {
		var tool struct{ Name string }
		if json.Unmarshal(raw, &tool) == nil {
			req.tools = append(req.tools, definition{name: tool.Name, size: len(raw)})
		}
	}
	for _, message := range in.Messages {
		for _, block := range anthropicBlocks(message.Content) {
			if block.Type == "tool_result" {
				var result seen
				for _, part := range anthropicBlocks(block.Content) {
					switch part.Type {
					case "text":
						result.text += part.Text + "\n"
					case "image":
						result.pictures++
					}
				}
				req.results[block.ToolUseID] = result
			}
		}
	}
	call := m.next(req)

	block := map[string]any{"type": "text", "text": "Done."}
	reason := "end_turn"
	if call != nil {
		block = map[string]any{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args}
		reason = "tool_use"
	}
	message := map[string]any{
		"id": m.newID("msg"), "type": "message", "role": "assistant", "model": in.Model,
		"usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
	}
	if !in.Stream {
		message["content"], message["stop_reason"] = []any{block}, reason
		writeJSON(w, message)
		return
	}
	message["content"], message["stop_reason"] = []any{}, nil
	e := newEvents(w)
	send := func(kind string, fields map[string]any) {
		fields["type"] = kind
		e.send(kind, fields)
	}
	send("message_start", map[string]any{"message": message})
	if call == nil {
		send("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
		send("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{"type": "text_delta", "text": "Done."}})
	} else {
		send("content_block_start", map[string]any{"index": 0, "content_block": map[string]any{
			"type": "tool_use", "id": call.id, "name": call.name, "input": map[string]any{}}})
		send("content_block_delta", map[string]any{"index": 0, "delta": map[string]any{
			"type": "input_json_delta", "partial_json": compactJSON(call.args)}})
	}
	send("content_block_stop", map[string]any{"index": 0})
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": reason}, "usage": map[string]any{"output_tokens": 1}})
	send("message_stop", map[string]any{})
}

type anthropicBlock struct {
	Type      string
	Text      string
	ToolUseID string `json:"tool_use_id"`
	Content   json.RawMessage
}

// anthropicBlocks returns content, which is a text or a list of blocks, as blocks.
func anthropicBlocks(content json.RawMessage) []anthropicBlock {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []anthropicBlock{{Type: "text", Text: text}}
	}
	var blocks []anthropicBlock
	_ = json.Unmarshal(content, &blocks) // other content has no blocks
	return blocks
}
