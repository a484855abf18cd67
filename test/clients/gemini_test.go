//go:build linux

package clients

import (
	"encoding/json"
	"net/http"
	"strings"
)

// gemini serves generateContent and streamGenerateContent of the Gemini API.
func (m *model) gemini(w http.ResponseWriter, r *http.Request) {
	type part struct {
		Text             string
		InlineData       json.RawMessage
		FunctionResponse *struct {
			Response json.RawMessage
			Parts    []struct{ InlineData json.RawMessage }
		}
	}
	var in struct {
		Tools []struct {
			FunctionDeclarations []json.RawMessage
		}
		Contents []struct {
			Role  string
			Parts []part
		}
	}
	_, method, _ := strings.Cut(r.PathValue("method"), ":")
	if method == "countTokens" {
		writeJSON(w, map[string]any{"totalTokens": 1})
		return
	}
	if !m.decode(w, r, &in) {
		return
	}
	req := request{results: map[string]seen{}}
	for _, tool := range in.Tools {
		for _, raw := range tool.FunctionDeclarations {
			var d struct{ Name string }
			if json.Unmarshal(raw, &d) == nil {
				req.tools = append(req.tools, definition{name: d.Name, size: len(raw)})
			}
		}
	}
	// Calls have no IDs of the model here. The script makes one call at a time, so
	// the results are in its order.
	n := 0
	for _, content := range in.Contents {
		if content.Role != "user" && content.Role != "function" {
			continue
		}
		for i, p := range content.Parts {
			if p.FunctionResponse == nil {
				continue
			}
			result := seen{text: geminiText(p.FunctionResponse.Response)}
			for _, inner := range p.FunctionResponse.Parts {
				if len(inner.InlineData) > 0 {
					result.pictures++
				}
			}
			for _, after := range content.Parts[i+1:] {
				if after.FunctionResponse != nil {
					break
				}
				result.text += after.Text
				if len(after.InlineData) > 0 {
					result.pictures++
				}
			}
			req.results[callID(n)] = result
			n++
		}
	}
	call := m.next(req)

	answer := map[string]any{"text": "Done."}
	if call != nil {
		answer = map[string]any{"functionCall": map[string]any{"name": call.name, "args": call.args}}
	}
	response := map[string]any{
		"candidates": []any{map[string]any{
			"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{answer}},
		}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  "scripted",
	}
	if method == "streamGenerateContent" {
		newEvents(w).send("", response)
		return
	}
	writeJSON(w, response)
}

// geminiText returns the response of a function. Its only text, if it is that, is
// without the JSON around it.
func geminiText(response json.RawMessage) string {
	var fields map[string]any
	if json.Unmarshal(response, &fields) == nil && len(fields) == 1 {
		for _, v := range fields {
			if text, ok := v.(string); ok {
				return text
			}
		}
	}
	return string(response)
}
