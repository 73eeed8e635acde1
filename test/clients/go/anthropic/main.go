// Command anthropic is an agent on the official Anthropic SDK.
package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/anthropics/anthropic-sdk-go"

	"clients/task"
)

var (
	client = anthropic.NewClient()
	ctx    = context.Background()
)

const maxTokens = 3000 // a budget for thinking is at least 1024

func start() anthropic.MessageNewParams {
	return anthropic.MessageNewParams{
		Model: anthropic.Model(task.Model), MaxTokens: task.Max,
		System:   []anthropic.TextBlockParam{{Text: task.System, CacheControl: anthropic.NewCacheControlEphemeralParam()}},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(task.Prompt))},
	}
}

func textOf(m *anthropic.Message) (text string) {
	task.Book(m.Usage.InputTokens, m.Usage.OutputTokens)
	for _, b := range m.Content {
		text += b.Text
	}
	return text
}

func ask(p anthropic.MessageNewParams) (string, error) {
	m, err := client.Messages.New(ctx, p)
	if err != nil {
		return "", err
	}
	return textOf(m), nil
}

func plain(l *task.Line) (err error) {
	l.Text, err = ask(start())
	return err
}

func stream(l *task.Line, p anthropic.MessageNewParams) (anthropic.Message, error) {
	events := client.Messages.NewStreaming(ctx, p)
	var all anthropic.Message
	for events.Next() {
		e := events.Current()
		if err := all.Accumulate(e); err != nil {
			return all, err
		}
		if e.Type == "content_block_delta" && e.Delta.Type == "text_delta" {
			l.Pieces++
		}
	}
	if err := events.Err(); err != nil {
		return all, err
	}
	if all.StopReason == "" {
		return all, errors.New("the stream ended without a reason")
	}
	return all, nil
}

func streamed(l *task.Line) error {
	m, err := stream(l, start())
	if err == nil {
		l.Text = textOf(&m)
	}
	return err
}

func tools(l *task.Line) error {
	p := start()
	p.MaxTokens = maxTokens
	p.Thinking = anthropic.ThinkingConfigParamOfEnabled(1024)
	for _, t := range task.Tools {
		u := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: t.Schema["properties"], Required: t.Schema["required"].([]string)}, t.Name)
		u.OfTool.Description = anthropic.String(t.About)
		p.Tools = append(p.Tools, u)
	}
	for {
		m, err := stream(l, p)
		if err != nil {
			return err
		}
		text := textOf(&m)
		p.Messages = append(p.Messages, m.ToParam())
		var results []anthropic.ContentBlockParamUnion
		for _, b := range m.Content {
			switch b.Type {
			case "thinking":
				l.Thoughts++
			case "tool_use":
				results = append(results, anthropic.NewToolResultBlock(b.ID, task.Call(b.Name, string(b.Input)), false))
			}
		}
		if len(results) == 0 {
			l.Text = text
			return nil
		}
		p.Messages = append(p.Messages, anthropic.NewUserMessage(results...))
	}
}

func structured(l *task.Line) error {
	p := start()
	p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: task.Report}
	text, err := ask(p)
	if err == nil {
		l.Text, err = task.ReadReport(text)
	}
	return err
}

func count(l *task.Line) error {
	p := start()
	r, err := client.Messages.CountTokens(ctx, anthropic.MessageCountTokensParams{
		Model: p.Model, Messages: p.Messages, System: anthropic.MessageCountTokensParamsSystemUnion{OfTextBlockArray: p.System},
	})
	if err == nil {
		l.Text = fmt.Sprint(r.InputTokens)
	}
	return err
}

// status is what the SDK keeps of an answer that is an error; not all of it is in
// the error's words.
func status(err error) (int, string) {
	var e *anthropic.Error
	if errors.As(err, &e) {
		return e.StatusCode, e.RawJSON()
	}
	return 0, ""
}

func main() {
	task.Main(map[string]func(*task.Line) error{
		"plain": plain, "stream": streamed, "tools": tools, "structured": structured, "error": plain, "long": tools, "count": count,
	}, status)
}
