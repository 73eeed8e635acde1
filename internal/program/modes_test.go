//go:build linux

package program

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// modeMakers are the ways in which real programs make files with the setuid or the
// setgid bit, each in a directory of its own. Linux ignores these bits behind a +.
var modeMakers = map[string]string{
	"chmod":         `cp /bin/true x; chmod 4755 x`,
	"chmod g+s":     `mkdir x; chmod g+s x`,
	"chmod -R":      `mkdir -p x/y; chmod -R 7777 x`,
	"cp -p":         `cp -p "$0" x`,
	"cp -a":         `cp -a "$0" x`,
	"install":       `install -m 6755 /bin/true x`,
	"install -d":    `install -d -m 2755 x`,
	"mkdir":         `mkdir -m 7777 x`,
	"mkdir -p":      `mkdir -p -m 2755 x/y`,
	"tar":           `echo $TAR | base64 -d | tar xpf - --no-same-owner`,
	"setfacl":       `cp /bin/true x; setfacl -m u::rwx x 2>/dev/null; chmod u+s x`,
	"python chmod":  python(`open('x', 'w'); os.chmod('x', 0o6755)`),
	"python fchmod": python(`f = open('x', 'w'); os.fchmod(f.fileno(), 0o4755)`),
	"python openat": python(`os.umask(0); os.open('x', os.O_CREAT | os.O_WRONLY, 0o6777)`),
	"+python mkdir": python(`os.umask(0); os.mkdir('x', 0o7777)`),
	"python mknod":  python(`os.umask(0); os.mknod('x', 0o104755)`),
	"python fifo":   python(`os.umask(0); os.mkfifo('x', 0o4755)`),
	"O_TMPFILE":     python(`os.umask(0); f = os.open('.', os.O_TMPFILE | os.O_RDWR, 0o4755); ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % f, -100, b'x', 0x400)`),
	"openat2":       raw(437, `-100, b'x\0', struct.pack('QQQ', os.O_CREAT | os.O_WRONLY, 0o6755, 0), 24`),
	"fchmodat2":     raw(452, `-100, b'old\0', 0o4755, 0`),
	"fchmodat":      raw(268, `-100, b'old\0', 0o2755`),
	"open":          raw(2, `b'x\0', os.O_CREAT | os.O_WRONLY, 0o4755`),
	"creat":         raw(85, `b'x\0', 0o4755`),
	"+old mkdir":    raw(83, `b'x\0', 0o2755`),
	"old mknod":     raw(133, `b'x\0', 0o104755, 0`),
	"+mkdirat":      raw(258, `-100, b'x\0', 0o7755`),
	"mknodat":       raw(259, `-100, b'x\0', 0o104755, 0`),
	"+high mode":    raw(83, `b'x\0', 0xffff0000000002755`),
}

func python(code string) string {
	return `python3 -c "import os, struct, ctypes; ` + code + `"`
}

// raw makes a system call of this kind of machine by its number.
func raw(nr int, args string) string {
	return python(fmt.Sprintf(`os.umask(0); open('old', 'w'); c = ctypes.CDLL(None); c.syscall.restype = ctypes.c_long; c.syscall(%d, *[ctypes.c_ulong(a & (1 << 64) - 1) if isinstance(a, int) else a for a in (%s,)])`, nr, args))
}

// TestJailModes makes files with the setuid or the setgid bit, in every way. Outside
// of a jail each way works, or the attempt would show nothing. In it none does, and
// the programs can do what they do without these bits.
func TestJailModes(t *testing.T) {
	for _, uid := range users() {
		t.Run(fmt.Sprint("root is ", uid == 0), func(t *testing.T) {
			y := newYard(t)
			old := y.out + "/old"
			if err := os.WriteFile(old, nil, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(old, uid, uid); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(old, 0o755|os.ModeSetuid); err != nil {
				t.Fatal(err)
			}
			y.given = y.out
			made := func(top string) (names []string) {
				_ = filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
					if err != nil {
						return nil
					}
					if fi, err := d.Info(); err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
						way := strings.Split(strings.TrimPrefix(name, top+"/"), "/")[0]
						if !slices.Contains(names, way) {
							names = append(names, way)
						}
					}
					return nil
				})
				return names
			}
			makers := maps.Clone(modeMakers)
			if runtime.GOARCH != "amd64" { // the numbers are those of this machine
				maps.DeleteFunc(makers, func(_, how string) bool { return strings.Contains(how, "c.syscall") })
			}
			script := func(top string) string {
				var b strings.Builder
				for name, how := range makers {
					fmt.Fprintf(&b, "mkdir '%s/%s' && (cd '%s/%s'; %s)\n", top, name, top, name, strings.ReplaceAll(how, "$TAR", suidTar))
				}
				b.WriteString("echo done\n")
				return b.String()
			}
			inside, outside := y.dir+"/inside", y.dir+"/outside"
			for _, d := range []string{inside, outside} {
				if err := os.Mkdir(d, 0o777); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(d, uid, -1); err != nil {
					t.Fatal(err)
				}
			}
			out, err := y.command(uid, "bare", "sh", "-c", script(outside), old).CombinedOutput()
			got := made(outside)
			for name := range makers {
				if name[0] != '+' && !slices.Contains(got, name) {
					t.Errorf("without the jail, %s makes no such file: %v: %s", name, err, out)
				}
			}
			out, err = y.command(uid, "sh", "-c", script(inside), old).CombinedOutput()
			if got := made(inside); len(got) > 0 || err != nil || !strings.HasSuffix(string(out), "done\n") {
				t.Errorf("in the jail made %q: %v: %s", got, err, out)
			}
			const usual = `umask 022; cp /bin/true a; chmod 755 a; mkdir -m 1777 b; install -m 644 a c; tar cf d.tar a b c; mkdir e; tar xpf d.tar -C e; python3 -c "import shutil; shutil.copytree('e', 'f')"; ls f | tr -d "\n"`
			if out, err := y.command(uid, "sh", "-ec", "cd "+inside+"; "+usual).CombinedOutput(); err != nil || string(out) != "abc" {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// suidTar is an archive with a setuid file, in base64.
var suidTar = func() string {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: "x", Mode: 0o6755, Typeflag: tar.TypeReg}) // a buffer takes everything
	_ = w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}()
