// Command openai is an agent on the official OpenAI SDK: chat completions, or
// responses.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"clients/task"
)

var (
	client = openai.NewClient()
	ctx    = context.Background()
)

func start() openai.ChatCompletionNewParams {
	return openai.ChatCompletionNewParams{
		Model: task.Model, MaxCompletionTokens: openai.Int(task.Max),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(task.System), openai.UserMessage(task.Prompt)},
	}
}

func complete(p openai.ChatCompletionNewParams) (string, error) {
	r, err := client.Chat.Completions.New(ctx, p)
	if err != nil {
		return "", err
	}
	task.Book(r.Usage.PromptTokens, r.Usage.CompletionTokens)
	return r.Choices[0].Message.Content, nil
}

func plain(l *task.Line) (err error) {
	l.Text, err = complete(start())
	return err
}

// stream is one streamed answer; its pieces are counted.
func stream(l *task.Line, p openai.ChatCompletionNewParams) (openai.ChatCompletionMessage, error) {
	p.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	events := client.Chat.Completions.NewStreaming(ctx, p)
	var all openai.ChatCompletionAccumulator
	for events.Next() {
		chunk := events.Current()
		all.AddChunk(chunk)
		if len(chunk.Choices) > 0 && chunk.Choices[0].Delta.Content != "" {
			l.Pieces++
		}
	}
	if err := events.Err(); err != nil {
		return openai.ChatCompletionMessage{}, err
	}
	if len(all.Choices) == 0 {
		return openai.ChatCompletionMessage{}, errors.New("the stream ended without an answer")
	}
	task.Book(all.Usage.PromptTokens, all.Usage.CompletionTokens)
	return all.Choices[0].Message, nil
}

func streamed(l *task.Line) error {
	m, err := stream(l, start())
	l.Text = m.Content
	return err
}

func tools(l *task.Line) error {
	p := start()
	for _, t := range task.Tools {
		p.Tools = append(p.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{Name: t.Name, Description: openai.String(t.About), Parameters: t.Schema}))
	}
	for {
		m, err := stream(l, p)
		if err != nil {
			return err
		}
		p.Messages = append(p.Messages, m.ToParam())
		if len(m.ToolCalls) == 0 {
			l.Text = m.Content
			return nil
		}
		for _, c := range m.ToolCalls {
			p.Messages = append(p.Messages, openai.ToolMessage(task.Call(c.Function.Name, c.Function.Arguments), c.ID))
		}
	}
}

func structured(l *task.Line) error {
	p := start()
	p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: "report", Strict: openai.Bool(true), Schema: task.Report},
	}
	text, err := complete(p)
	if err == nil {
		l.Text, err = task.ReadReport(text)
	}
	return err
}

func embed(l *task.Line) error {
	r, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: task.Model, Dimensions: openai.Int(8), Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "one two"}},
	})
	if err != nil {
		return err
	}
	task.Book(r.Usage.PromptTokens, 0)
	l.Text = fmt.Sprint(len(r.Data[0].Embedding), len(r.Data[1].Embedding))
	return nil
}

func asked() responses.ResponseNewParams {
	return responses.ResponseNewParams{
		Model: task.Model, Instructions: openai.String(task.System), MaxOutputTokens: openai.Int(task.Max),
		Input: responses.ResponseNewParamsInputUnion{OfInputItemList: responses.ResponseInputParam{
			responses.ResponseInputItemParamOfMessage(task.Prompt, responses.EasyInputMessageRoleUser),
		}},
	}
}

func respond(p responses.ResponseNewParams) (string, error) {
	r, err := client.Responses.New(ctx, p)
	if err != nil {
		return "", err
	}
	task.Book(r.Usage.InputTokens, r.Usage.OutputTokens)
	return r.OutputText(), nil
}

func responsePlain(l *task.Line) (err error) {
	l.Text, err = respond(asked())
	return err
}

func responseStream(l *task.Line, p responses.ResponseNewParams) (r responses.Response, err error) {
	events := client.Responses.NewStreaming(ctx, p)
	for events.Next() {
		switch e := events.Current(); e.Type {
		case "response.output_text.delta":
			l.Pieces++
		case "response.completed", "response.incomplete":
			r = e.Response
		case "response.failed", "error":
			return r, fmt.Errorf("the stream says: %s", e.RawJSON())
		}
	}
	if err := events.Err(); err != nil {
		return r, err
	}
	if r.ID == "" {
		return r, errors.New("the stream ended without a response")
	}
	task.Book(r.Usage.InputTokens, r.Usage.OutputTokens)
	return r, nil
}

func responseStreamed(l *task.Line) error {
	r, err := responseStream(l, asked())
	l.Text = r.OutputText()
	return err
}

func responseLoop(l *task.Line) error {
	p := asked()
	items := &p.Input.OfInputItemList
	for _, t := range task.Tools {
		p.Tools = append(p.Tools, responses.ToolParamOfFunction(t.Name, t.Schema, true))
	}
	for {
		r, err := responseStream(l, p)
		if err != nil {
			return err
		}
		var results responses.ResponseInputParam
		for _, o := range r.Output {
			switch o.Type {
			case "message":
				text := ""
				for _, c := range o.Content {
					text += c.Text
				}
				*items = append(*items, responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleAssistant))
			case "function_call":
				c := o.AsFunctionCall()
				*items = append(*items, responses.ResponseInputItemParamOfFunctionCall(c.Arguments, c.CallID, c.Name))
				result := responses.ResponseInputItemParamOfFunctionCallOutput(task.Call(c.Name, c.Arguments))
				result.OfFunctionCallOutput.CallID = param.NewOpt(c.CallID)
				results = append(results, result)
			}
		}
		*items = append(*items, results...)
		if len(results) == 0 {
			l.Text = r.OutputText()
			return nil
		}
	}
}

func responseStructured(l *task.Line) error {
	p := asked()
	p.Text.Format = responses.ResponseFormatTextConfigParamOfJSONSchema("report", task.Report)
	text, err := respond(p)
	if err == nil {
		l.Text, err = task.ReadReport(text)
	}
	return err
}

// status is what the SDK keeps of an answer that is an error; not all of it is in
// the error's words.
func status(err error) (int, string) {
	var e *openai.Error
	if errors.As(err, &e) {
		return e.StatusCode, e.RawJSON()
	}
	return 0, ""
}

func main() {
	modes := map[string]func(*task.Line) error{
		"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools, "embed": embed,
	}
	if task.Face == "responses" {
		modes = map[string]func(*task.Line) error{
			"plain": responsePlain, "stream": responseStreamed, "tools": responseLoop, "structured": responseStructured, "error": responsePlain, "long": responseLoop,
		}
	}
	task.Main(modes, status)
}
