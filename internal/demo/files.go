package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kern-run/kern/abi"
)

// yesterday is when a person last changed the files of the story.
func yesterday() time.Time { return time.Now().Add(-24 * time.Hour).Truncate(time.Second) }

// site makes the directory that agents work in, and returns what it holds.
func (d *demo) site() (map[string]string, error) {
	files := map[string]string{"settings.json": "{\"version\": 1}\n", "notes.md": "# Notes\n\nwritten by hand\n"}
	if err := os.Mkdir(filepath.Join(d.dir, "site"), 0o700); err != nil {
		return nil, err
	}
	for name, text := range files {
		full := filepath.Join(d.dir, "site", name)
		if err := errors.Join(os.WriteFile(full, []byte(text), 0o600), os.Chtimes(full, yesterday(), yesterday())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// untouched counts the files of the site that are what they were, to the byte
// and the time.
func (d *demo) untouched(files map[string]string) (n int) {
	for name, want := range files {
		full := filepath.Join(d.dir, "site", name)
		b, err := os.ReadFile(full)
		fi, serr := os.Stat(full)
		if err == nil && serr == nil && string(b) == want && time.Since(fi.ModTime()) > 23*time.Hour {
			n++
		}
	}
	return n
}

// torn kills a tool with kill -9 while it writes.
func (d *demo) torn(ctx context.Context) error {
	files, err := d.site()
	if err != nil {
		return err
	}
	err = errors.Join(d.file("torn.yaml", `
replies:
  - {calls: [{tool: migrate}]}
  - {text: "the migration was killed; I left everything as it was"}
`), d.file("migrator.yaml", `
name: migrator
model: script:torn.yaml
workspace: site
tools:
  - name: migrate
    effect: transactional
    command: [sh, -c, 'printf "{\"vers" > settings.json; rm notes.md; echo $$ > "$0.new"; mv "$0.new" "$0"; sleep 60', `+filepath.Join(d.dir, "writing")+`]
`))
	if err != nil {
		return err
	}
	pid, err := d.start(ctx, "migrator.yaml", "migrate the settings")
	if err != nil {
		return err
	}
	tool, err := d.writing(ctx)
	if err != nil {
		return err
	}
	d.check(d.untouched(files) == 2, "half a file is written and another removed, and nobody else sees any of it")
	d.say("   $ kill -9 %d    (the tool, in the middle of its work)", tool)
	p, err := os.FindProcess(tool)
	if err != nil {
		return err
	}
	if err := p.Kill(); err != nil {
		return err
	}
	out, err := d.kern(ctx, "wait", fmt.Sprint(pid))
	if err != nil {
		return err
	}
	d.check(strings.Contains(out, "it was"), "the model was told, and the run went on: %q", strings.TrimSpace(out))
	d.check(d.untouched(files) == 2, "both files are as they were, to the byte and the time")
	return nil
}

// writing waits until the tool is in the middle of its work, and is its process.
func (d *demo) writing(ctx context.Context) (pid int, err error) {
	for {
		b, err := os.ReadFile(filepath.Join(d.dir, "writing"))
		if err == nil {
			_, err = fmt.Sscan(string(b), &pid)
			return pid, err
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("the tool did not begin: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// mended lets an agent write settings that are not JSON, and takes back all that
// it did.
func (d *demo) mended(ctx context.Context) error {
	files := map[string]string{"settings.json": "{\"version\": 1}\n", "notes.md": "# Notes\n\nwritten by hand\n"}
	err := errors.Join(d.file("mend.yaml", `
replies:
  - {calls: [{tool: fs.write, args: {path: settings.json, content: "{\"version\": 2,}"}}]}
  - {calls: [{tool: fs.edit, args: {path: settings.json, old: "1", new: "2"}}]}
  - {calls: [{tool: fs.write, args: {path: notes.md, content: "all new\n"}}]}
  - {text: "the settings are of version 2"}
`), d.file("editor.yaml", `
name: editor
model: script:mend.yaml
workspace: site
invariants:
  - {paths: "**.json", check: json}
`))
	if err != nil {
		return err
	}
	watcher := d.watch("settings.json")
	r, err := d.run(ctx, "-f", "editor.yaml", "raise the version")
	reads, bad := watcher()
	if err != nil {
		return err
	}
	pid := fmt.Sprint(r.Pid)
	log, err := d.kern(ctx, "log", pid, "--json")
	if err != nil {
		return err
	}
	d.check(strings.Contains(log, string(abi.InvariantFailed)), "settings that are not JSON were refused, and the model was told where they break")
	d.check(r.Exit == abi.ExitDone && bad == 0, "it mended them; of %d looks at the file meanwhile %d saw broken ones", reads, bad)
	d.say("   $ kern history %s", pid)
	out, err := d.kern(ctx, "history", pid)
	if err != nil {
		return err
	}
	d.say("     %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n     "))
	d.check(d.untouched(files) == 0, "both files have changed")
	d.say("   $ kern undo %s", pid)
	if out, err = d.kern(ctx, "undo", pid); err != nil {
		return err
	}
	d.say("     %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", "\n     "))
	d.check(d.untouched(files) == 2, "both files are those of yesterday, to the byte and the time")
	return nil
}

// watch reads a file of the site again and again, as another program would. The
// function it returns ends that, and says how often it was read, and how often
// it was no JSON.
func (d *demo) watch(name string) func() (reads, bad int) {
	var reads, bad int
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			b, err := os.ReadFile(filepath.Join(d.dir, "site", name))
			if reads++; err != nil || !json.Valid(b) {
				bad++
			}
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() (int, int) {
		close(stop)
		done.Wait()
		return reads, bad
	}
}
