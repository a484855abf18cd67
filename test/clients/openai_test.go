//go:build linux

package clients

import (
	"encoding/json"
	"net/http"
	"strings"
)

// part is one part of a message's or a result's content, in both APIs of OpenAI.
type openaiPart struct {
	Type     string
	Text     string
	ImageURL json.RawMessage `json:"image_url"`
}

// openaiContent returns content, which is a text or a list of parts, as seen by the
// model.
func openaiContent(content json.RawMessage) seen {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return seen{text: text}
	}
	var parts []openaiPart
	_ = json.Unmarshal(content, &parts) // other content has no parts
	var result seen
	for _, p := range parts {
		switch {
		case len(p.ImageURL) > 0:
			result.pictures++
		case p.Text != "":
			result.text += p.Text + "\n"
		}
	}
	return result
}

// responses serves the Responses API of OpenAI.
func (m *model) responses(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model  string
		Stream bool
		Tools  []json.RawMessage
		Input  json.RawMessage
	}
	if !m.decode(w, r, &in) {
		return
	}
	req := request{results: map[string]seen{}}
	for _, raw := range in.Tools {
		req.tools = append(req.tools, responsesTools(raw)...)
	}
	var items []struct {
		Type   string
		CallID string `json:"call_id"`
		Output json.RawMessage
	}
	_ = json.Unmarshal(in.Input, &items) // the input of a first request may be a text
	for _, item := range items {
		if item.Type == "function_call_output" {
			req.results[item.CallID] = openaiContent(item.Output)
		}
	}
	call := m.next(req)

	message, response := m.newID("msg"), m.newID("resp")
	item := map[string]any{
		"type": "message", "id": message, "role": "assistant", "status": "completed",
		"content": []any{map[string]any{"type": "output_text", "text": "Done.", "annotations": []any{}}},
	}
	if call != nil {
		item = map[string]any{
			"type": "function_call", "id": "fc_" + call.id, "call_id": call.id, "status": "completed",
			"name": call.name, "arguments": compactJSON(call.args),
		}
		if call.namespace != "" {
			item["namespace"] = call.namespace
		}
	}
	answer := map[string]any{
		"id": response, "object": "response", "created_at": 1, "model": in.Model, "status": "completed",
		"output": []any{item}, "parallel_tool_calls": false, "tools": []any{}, "tool_choice": "auto", "metadata": map[string]any{},
		"error": nil, "incomplete_details": nil, "instructions": nil,
		"usage": map[string]any{
			"input_tokens": 1, "input_tokens_details": map[string]any{"cached_tokens": 0},
			"output_tokens": 1, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 2,
		},
	}
	if !in.Stream {
		writeJSON(w, answer)
		return
	}
	e := newEvents(w)
	sequence := 0
	send := func(kind string, fields map[string]any) {
		fields["type"], fields["sequence_number"] = kind, sequence
		sequence++
		e.send(kind, fields)
	}
	send("response.created", map[string]any{"response": map[string]any{"id": response, "object": "response", "created_at": 1, "model": in.Model, "status": "in_progress", "output": []any{}}})
	send("response.output_item.added", map[string]any{"output_index": 0, "item": item})
	if call == nil {
		send("response.output_text.delta", map[string]any{"output_index": 0, "content_index": 0, "item_id": message, "delta": "Done."})
	} else {
		send("response.function_call_arguments.delta", map[string]any{"output_index": 0, "item_id": "fc_" + call.id, "delta": compactJSON(call.args)})
		send("response.function_call_arguments.done", map[string]any{"output_index": 0, "item_id": "fc_" + call.id, "arguments": compactJSON(call.args)})
	}
	send("response.output_item.done", map[string]any{"output_index": 0, "item": item})
	send("response.completed", map[string]any{"response": answer})
}

// responsesTools returns the tools of an entry of the Responses API, which may be a
// namespace of tools.
func responsesTools(raw json.RawMessage) []definition {
	var tool struct {
		Type, Name string
		Tools      []json.RawMessage
	}
	if json.Unmarshal(raw, &tool) != nil {
		return nil
	}
	if tool.Type != "namespace" {
		return []definition{{name: tool.Name, size: len(raw)}}
	}
	var all []definition
	for _, inner := range tool.Tools {
		for _, d := range responsesTools(inner) {
			d.namespace = tool.Name
			all = append(all, d)
		}
	}
	return all
}

// chat serves the Chat Completions API of OpenAI.
func (m *model) chat(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Model  string
		Stream bool
		Tools  []json.RawMessage
		// A picture cannot be in the message of a tool in this API. Some clients put it
		// into a message of the user after it.
		Messages []struct {
			Role       string
			ToolCallID string `json:"tool_call_id"`
			Content    json.RawMessage
		}
	}
	if !m.decode(w, r, &in) {
		return
	}
	req := request{results: map[string]seen{}}
	for _, raw := range in.Tools {
		var tool struct{ Function struct{ Name string } }
		if json.Unmarshal(raw, &tool) == nil {
			req.tools = append(req.tools, definition{name: tool.Function.Name, size: len(raw)})
		}
	}
	last := ""
	for _, message := range in.Messages {
		content := openaiContent(message.Content)
		switch {
		case message.Role == "tool":
			last = message.ToolCallID
			req.results[last] = content
		case message.Role == "user" && last != "" && content.pictures > 0:
			result := req.results[last]
			result.pictures += content.pictures
			req.results[last] = result
		}
	}
	call := m.next(req)

	answer := map[string]any{"role": "assistant", "content": "Done."}
	reason := "stop"
	if call != nil {
		answer = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{
			"index": 0, "id": call.id, "type": "function",
			"function": map[string]any{"name": call.name, "arguments": compactJSON(call.args)},
		}}}
		reason = "tool_calls"
	}
	id := m.newID("chatcmpl")
	completion := func(object, part string, message map[string]any, finish any) map[string]any {
		return map[string]any{
			"id": id, "object": object, "created": 1, "model": in.Model,
			"choices": []any{map[string]any{"index": 0, part: message, "finish_reason": finish}},
			"usage":   map[string]any{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
		}
	}
	if !in.Stream {
		writeJSON(w, completion("chat.completion", "message", answer, reason))
		return
	}
	e := newEvents(w)
	e.send("", completion("chat.completion.chunk", "delta", answer, nil))
	e.send("", completion("chat.completion.chunk", "delta", map[string]any{}, reason))
	_, _ = strings.NewReader("data: [DONE]\n\n").WriteTo(w)
}
