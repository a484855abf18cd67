package main

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func addPrompts(server *mcp.Server) {
	argument := func(name string) *mcp.PromptArgument { return &mcp.PromptArgument{Name: name, Required: true} }
	server.AddPrompt(&mcp.Prompt{Name: "test_simple_prompt", Description: "A prompt."}, prompt(textOf("This is a simple prompt for testing.")))
	server.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_arguments", Description: "A prompt with its arguments in it.",
		Arguments: []*mcp.PromptArgument{argument("arg1"), argument("arg2")},
	}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return prompt(textOf("Prompt with arguments: arg1='%s', arg2='%s'", req.Params.Arguments["arg1"], req.Params.Arguments["arg2"]))(ctx, req)
	})
	server.AddPrompt(&mcp.Prompt{
		Name: "test_prompt_with_embedded_resource", Description: "A prompt with a resource in it.",
		Arguments: []*mcp.PromptArgument{argument("resourceUri")},
	}, func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		embedded := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{
			URI: req.Params.Arguments["resourceUri"], MIMEType: "text/plain", Text: "an embedded text",
		}}
		return prompt(embedded, textOf("Look at the resource."))(ctx, req)
	})
	server.AddPrompt(&mcp.Prompt{Name: "test_prompt_with_image", Description: "A prompt with an image in it."},
		prompt(&mcp.ImageContent{MIMEType: "image/png", Data: samplePicture()}, textOf("Look at the image.")))
	server.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "A prompt that asks before it is given."},
		func(ctx context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			got, ok := accepted(req.Params.InputResponses, "user_context")
			if !ok {
				return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{
					"user_context": ask("What is it about?", "context", "string"),
				}}, nil
			}
			return prompt(textOf("Context: %v", got["context"]))(ctx, req)
		})
}
