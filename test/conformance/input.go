package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// inputFixtures ask the client for input. For older versions, the fixture sends a
// request during the call. For 2026-07-28, the result lists the missing input,
// and the client repeats the call with the input.
func inputFixtures() []fixture {
	states := newStateSigner()
	return []fixture{
		{name: "test_sampling", description: "Asks the client's model.",
			input: `{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}`,
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ Prompt string }
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				res, err := req.Session.CreateMessage(ctx, sample(in.Prompt))
				if err != nil {
					return nil, err
				}
				if c, ok := res.Content.(*mcp.TextContent); ok {
					return answer("LLM response: %s", c.Text), nil
				}
				return answer("LLM response: not a text"), nil
			}},
		{name: "test_elicitation", description: "Asks the user.",
			input: `{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}`,
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var in struct{ Message string }
				if err := json.Unmarshal(req.Params.Arguments, &in); err != nil {
					return nil, err
				}
				return elicit(ctx, req, in.Message, `{"type":"object","properties":{"username":{"type":"string"},"email":{"type":"string"}},"required":["username","email"]}`)
			}},
		{name: "test_elicitation_sep1034_defaults", description: "Asks the user, with defaults.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return elicit(ctx, req, "Check these", elicitDefaults)
			}},
		{name: "test_elicitation_sep1330_enums", description: "Lets the user choose.",
			run: func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return elicit(ctx, req, "Choose", elicitEnums)
			}},

		{name: "test_input_required_result_elicitation", description: "Needs the user's name.",
			run: needs(func(r mcp.InputResponseMap) (string, bool) {
				got, ok := accepted(r, "user_name")
				name, isText := got["name"].(string)
				return "Hello, " + name + "!", ok && isText
			}, mcp.InputRequestMap{"user_name": ask("What is your name?", "name", "string")})},
		{name: "test_input_required_result_sampling", description: "Needs the client's model.",
			run: needs(func(r mcp.InputResponseMap) (string, bool) {
				said, ok := sampled(r, "capital_question")
				return "The model said: " + said, ok
			}, mcp.InputRequestMap{"capital_question": sample("What is the capital of France?")})},
		{name: "test_input_required_result_list_roots", description: "Needs the client's roots.",
			run: needs(func(r mcp.InputResponseMap) (string, bool) {
				roots, ok := rooted(r, "client_roots")
				return "The roots are " + roots, ok
			}, mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}})},
		{name: "test_input_required_result_multiple_inputs", description: "Needs three things at once.",
			run: states.carried(needs(func(r mcp.InputResponseMap) (string, bool) {
				got, named := accepted(r, "user_name")
				said, greeted := sampled(r, "greeting")
				roots, listed := rooted(r, "client_roots")
				name, isText := got["name"].(string)
				return said + " " + name + ", " + roots, named && isText && greeted && listed
			}, mcp.InputRequestMap{
				"user_name":    ask("What is your name?", "name", "string"),
				"greeting":     sample("Write a greeting."),
				"client_roots": &mcp.ListRootsParams{},
			}))},
		{name: "test_input_required_result_request_state", description: "Needs a confirmation, and its own state back.", run: states.confirm},
		{name: "test_input_required_result_tampered_state", description: "Refuses a state that it did not make.", run: states.confirm},
		{name: "test_input_required_result_multi_round", description: "Needs one thing after the other.", run: states.rounds},
		{name: "test_input_required_result_capabilities", description: "Asks for what the client can give.", run: askWhatIsPossible},
	}
}

// needs returns a handler that applies use to the input responses. Until use
// succeeds, the handler answers with requests.
func needs(use func(mcp.InputResponseMap) (string, bool), requests mcp.InputRequestMap) mcp.ToolHandler {
	return func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if text, ok := use(req.Params.InputResponses); ok {
			return answer("%s", text), nil
		}
		return &mcp.CallToolResult{InputRequests: requests}, nil
	}
}

// ask makes a question to the user with one field.
func ask(message, field, typ string) *mcp.ElicitParams {
	return &mcp.ElicitParams{
		Message: message,
		RequestedSchema: map[string]any{
			"type": "object", "properties": map[string]any{field: map[string]any{"type": typ}}, "required": []string{field},
		},
	}
}

// sample makes a question to the client's model.
func sample(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{
		MaxTokens: 100,
		Messages:  []*mcp.SamplingMessage{{Role: "user", Content: textOf("%s", prompt)}},
	}
}

// accepted returns the fields of the user's answer, if the user accepted.
func accepted(r mcp.InputResponseMap, key string) (map[string]any, bool) {
	res, ok := r[key].(*mcp.ElicitResult)
	if !ok || res == nil || res.Action != "accept" || res.Content == nil {
		return nil, false
	}
	return res.Content, true
}

// sampled returns the text from the client's model.
func sampled(r mcp.InputResponseMap, key string) (string, bool) {
	res, ok := r[key].(*mcp.CreateMessageWithToolsResult)
	if !ok || res == nil {
		return "", false
	}
	var b strings.Builder
	for _, c := range res.Content {
		if t, ok := c.(*mcp.TextContent); ok {
			b.WriteString(t.Text)
		}
	}
	return b.String(), true
}

// rooted returns the client's roots.
func rooted(r mcp.InputResponseMap, key string) (string, bool) {
	res, ok := r[key].(*mcp.ListRootsResult)
	if !ok || res == nil {
		return "", false
	}
	var uris []string
	for _, root := range res.Roots {
		uris = append(uris, root.URI)
	}
	return strings.Join(uris, ", "), true
}

// elicit asks the user during a call.
func elicit(ctx context.Context, req *mcp.CallToolRequest, message, schema string) (*mcp.CallToolResult, error) {
	res, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: message, RequestedSchema: json.RawMessage(schema)})
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(res.Content)
	if err != nil {
		return nil, err
	}
	return answer("User response: action=%s, content=%s", res.Action, content), nil
}

const elicitDefaults = `{"type":"object","properties":{` +
	`"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},` +
	`"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}`

const elicitEnums = `{"type":"object","properties":{` +
	`"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},` +
	`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},` +
	`"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},` +
	`"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},` +
	`"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}}}`

// askWhatIsPossible asks only for input that the client declared as supported.
func askWhatIsPossible(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if len(req.Params.InputResponses) > 0 {
		return answer("all that was asked for came"), nil
	}
	requests := mcp.InputRequestMap{}
	if c := req.ClientCapabilities(); c != nil {
		if c.Elicitation != nil {
			requests["user_name"] = ask("What is your name?", "name", "string")
		}
		if c.Sampling != nil {
			requests["greeting"] = sample("Write a greeting.")
		}
		if c.RootsV2 != nil {
			requests["client_roots"] = &mcp.ListRootsParams{}
		}
	}
	if len(requests) == 0 {
		return answer("this client can give nothing"), nil
	}
	return &mcp.CallToolResult{InputRequests: requests}, nil
}

// A stateSigner makes request states that clients carry but cannot change.
type stateSigner struct{ key []byte }

func newStateSigner() stateSigner {
	key := make([]byte, 32)
	rand.Read(key)
	return stateSigner{key}
}

func (s stateSigner) mac(text string) string {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

func (s stateSigner) sign(text string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + s.mac(text)
}

// open returns the text of a state. If the state was not signed by s, it returns
// a protocol error.
func (s stateSigner) open(state string) (string, error) {
	encoded, mac, _ := strings.Cut(state, ".")
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || !hmac.Equal([]byte(mac), []byte(s.mac(string(text)))) {
		return "", &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "requestState is not one of this server"}
	}
	return string(text), nil
}

// carried adds a signed state to the questions of next, and refuses a state that
// s did not sign.
func (s stateSigner) carried(next mcp.ToolHandler) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if req.Params.RequestState != "" {
			if _, err := s.open(req.Params.RequestState); err != nil {
				return nil, err
			}
		}
		res, err := next(ctx, req)
		if err == nil && res.InputRequests != nil {
			res.RequestState = s.sign("carried")
		}
		return res, err
	}
}

// confirm asks for a confirmation, and accepts it only together with a signed
// state.
func (s stateSigner) confirm(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if req.Params.RequestState != "" {
		if _, err := s.open(req.Params.RequestState); err != nil {
			return nil, err
		}
		if _, ok := accepted(req.Params.InputResponses, "confirm"); ok {
			return answer("state-ok: the state came back and the user agreed"), nil
		}
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"confirm": ask("Do you agree?", "ok", "boolean")},
		RequestState:  s.sign("confirm"),
	}, nil
}

// rounds asks for a name and then for a colour. The state carries the name.
func (s stateSigner) rounds(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	state := ""
	if req.Params.RequestState != "" {
		var err error
		if state, err = s.open(req.Params.RequestState); err != nil {
			return nil, err
		}
	}
	if name, ok := strings.CutPrefix(state, "second "); ok {
		if got, ok := accepted(req.Params.InputResponses, "step2"); ok {
			return answer("%s likes %v", name, got["color"]), nil
		}
	}
	if state == "first" {
		if got, ok := accepted(req.Params.InputResponses, "step1"); ok {
			name, _ := got["name"].(string)
			return &mcp.CallToolResult{
				InputRequests: mcp.InputRequestMap{"step2": ask("What is your favourite color?", "color", "string")},
				RequestState:  s.sign("second " + name),
			}, nil
		}
	}
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{"step1": ask("What is your name?", "name", "string")},
		RequestState:  s.sign("first"),
	}, nil
}
