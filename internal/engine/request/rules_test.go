package request

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testRules are the rules of a server with all defaults.
func testRules() *Rules {
	return &Rules{
		Defaults: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		RunTimeout: 30 * time.Second, MaxRunTimeout: 10 * time.Minute,
	}
}

func TestCheckRun(t *testing.T) {
	rules := testRules()
	repeat := strings.Repeat
	many := func(n int) (list []string) {
		for range n {
			list = append(list, "x")
		}
		return list
	}
	for _, c := range []struct {
		name string
		req  sandbox.RunRequest
		want string // begins the error; "" is none
	}{
		{"Code", sandbox.RunRequest{Code: "x"}, ""},
		{"Command", sandbox.RunRequest{Commands: []string{"x"}}, ""},
		{"Argv", sandbox.RunRequest{Argv: []string{"x", ""}}, ""},
		{"Nothing", sandbox.RunRequest{}, "code, command:"},
		{"TwoThings", sandbox.RunRequest{Code: "x", Argv: []string{"x"}}, "code, command:"},
		{"LanguageOfACommand", sandbox.RunRequest{Argv: []string{"x"}, Language: "go"}, "language, args:"},
		{"ArgsOfACommand", sandbox.RunRequest{Commands: []string{"x"}, Args: []string{"y"}}, "language, args:"},

		{"MostCode", sandbox.RunRequest{Code: repeat("x", maxCode)}, ""},
		{"TooMuchCode", sandbox.RunRequest{Code: repeat("x", maxCode+1)}, "code:"},
		{"CodeWithNUL", sandbox.RunRequest{Code: "a\x00b"}, "code:"},
		{"CodeThatIsNotUTF8", sandbox.RunRequest{Code: "# \xff"}, ""},

		{"MostCommands", sandbox.RunRequest{Commands: many(maxCommands)}, ""},
		{"TooManyCommands", sandbox.RunRequest{Commands: many(maxCommands + 1)}, "command:"},
		{"EmptyCommand", sandbox.RunRequest{Commands: []string{"x", " \n"}}, "command:"},
		{"CommandWithNUL", sandbox.RunRequest{Commands: []string{"\x00"}}, "command:"},
		{"CommandThatIsNotUTF8", sandbox.RunRequest{Commands: []string{"\xff"}}, "command:"},
		{"LongestCommand", sandbox.RunRequest{Commands: []string{repeat("x", maxText)}}, ""},
		{"TooLongACommand", sandbox.RunRequest{Commands: []string{repeat("x", maxText+1)}}, "command:"},
		{"NoProgram", sandbox.RunRequest{Argv: []string{""}}, "command:"},
		{"MostArgv", sandbox.RunRequest{Argv: many(maxArgs)}, ""},
		{"TooManyArgv", sandbox.RunRequest{Argv: many(maxArgs + 1)}, "args:"},
		{"TooManyArgs", sandbox.RunRequest{Code: "x", Args: many(maxArgs + 1)}, "args:"},
		{"ArgWithNUL", sandbox.RunRequest{Code: "x", Args: []string{"\x00"}}, "args:"},

		{"Dir", sandbox.RunRequest{Code: "x", Dir: "sub"}, ""},
		{"DirWithNUL", sandbox.RunRequest{Code: "x", Dir: "/a\x00"}, "cwd:"},
		{"DirThatIsNotUTF8", sandbox.RunRequest{Code: "x", Dir: "/\xff"}, "cwd:"},
		{"TooLongADir", sandbox.RunRequest{Code: "x", Dir: repeat("/x", MaxPath)}, "cwd:"},

		{"Env", sandbox.RunRequest{Code: "x", Env: map[string]string{"_a1": "", "B": "x=y\n"}}, ""},
		{"EnvWithoutAName", sandbox.RunRequest{Code: "x", Env: map[string]string{"": "SECRET"}}, "env:"},
		{"EnvWithABadName", sandbox.RunRequest{Code: "x", Env: map[string]string{"A=B": "SECRET"}}, "env:"},
		{"EnvBeginningWithADigit", sandbox.RunRequest{Code: "x", Env: map[string]string{"1A": "SECRET"}}, "env:"},
		{"EnvWithALongName", sandbox.RunRequest{Code: "x", Env: map[string]string{repeat("A", maxEnvName+1): "SECRET"}}, "env:"},
		{"EnvWithNUL", sandbox.RunRequest{Code: "x", Env: map[string]string{"A": "SECRET\x00"}}, "env: A:"},
		{"EnvThatIsNotUTF8", sandbox.RunRequest{Code: "x", Env: map[string]string{"A": "SECRET\xff"}}, "env: A:"},
		{"TooLongAnEnv", sandbox.RunRequest{Code: "x", Env: map[string]string{"A": "SECRET" + repeat("x", maxText)}}, "env: A:"},
		{"TooManyEnv", sandbox.RunRequest{Code: "x", Env: manyEnv(MaxEnv + 1)}, "env:"},

		{"MostStdin", sandbox.RunRequest{Code: "x", Stdin: make([]byte, maxStdin)}, ""},
		{"TooMuchStdin", sandbox.RunRequest{Code: "x", Stdin: make([]byte, maxStdin+1)}, "stdin:"},
		{"Terminal", sandbox.RunRequest{Code: "x", PTY: &sandbox.TerminalSize{Cols: 80, Rows: 24}}, ""},
		{"TerminalWithoutRows", sandbox.RunRequest{Code: "x", PTY: &sandbox.TerminalSize{Cols: 80}}, "terminal size:"},
		{"TooLargeATerminal", sandbox.RunRequest{Code: "x", PTY: &sandbox.TerminalSize{Cols: 80, Rows: maxTerminal + 1}}, "terminal size:"},

		{"LongestTimeout", sandbox.RunRequest{Code: "x", Timeout: 10 * time.Minute}, ""},
		{"TooLongATimeout", sandbox.RunRequest{Code: "x", Timeout: 10*time.Minute + 1}, "timeout:"},
		{"TimeoutOfTheSandbox", sandbox.RunRequest{Code: "x", Timeout: sandbox.Forever}, "timeout: as long as the sandbox is above the maximum, 10m0s"},
		{"NegativeTimeout", sandbox.RunRequest{Code: "x", Timeout: -1}, "timeout:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := rules.CheckRun(&c.req)
			if c.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !errors.Is(err, sandbox.Invalid) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("%v, want an invalid %s", err, c.want)
				return
			}
			if len(err.Error()) > 300 || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "\x00") {
				t.Errorf("says too much: %.400q", err)
			}
		})
	}
}

func manyEnv(n int) map[string]string {
	env := map[string]string{}
	for i := range n {
		env[fmt.Sprintf("V%d", i)] = "x"
	}
	return env
}

func TestCheckCreate(t *testing.T) {
	rules := testRules()
	rules.Maxima, rules.MaxNetwork = sandbox.Limits{MemoryBytes: 1 << 30, Lifetime: 48 * time.Hour}, "*.a.example"
	rules.Features = driver.Features{Host: true, Network: true}
	for _, c := range []struct {
		name string
		req  sandbox.CreateRequest
		kind sandbox.Kind
		want string
	}{
		{"Defaults", sandbox.CreateRequest{}, "", ""},
		{"Name", sandbox.CreateRequest{Name: "grüße 7"}, "", ""},
		{"LongName", sandbox.CreateRequest{Name: strings.Repeat("x", maxName+1)}, sandbox.Invalid, "name:"},
		{"NameWithControls", sandbox.CreateRequest{Name: "a\x1b[31m"}, sandbox.Invalid, "name:"},
		{"Image", sandbox.CreateRequest{Image: "debian:stable"}, "", ""},
		{"Writable", sandbox.CreateRequest{Writable: []string{"/app", "/srv"}}, "", ""},
		{"WritableSystem", sandbox.CreateRequest{Writable: []string{"/etc"}}, sandbox.Invalid, "writable:"},
		{"WritableBelow", sandbox.CreateRequest{Writable: []string{"/app/x"}}, sandbox.Invalid, "writable:"},
		{"WritableRelative", sandbox.CreateRequest{Writable: []string{"app"}}, sandbox.Invalid, "writable:"},
		{"WritableUp", sandbox.CreateRequest{Writable: []string{"/.."}}, sandbox.Invalid, "writable:"},
		{"WritableRoot", sandbox.CreateRequest{Writable: []string{"/"}}, sandbox.Invalid, "writable:"},
		{"WritableTwice", sandbox.CreateRequest{Writable: []string{"/app", "/app"}}, sandbox.Invalid, "writable:"},
		{"WritableMany", sandbox.CreateRequest{Writable: []string{"/a", "/b", "/c", "/d", "/e"}}, sandbox.Invalid, "writable:"},
		{"ImageWithSpace", sandbox.CreateRequest{Image: "a b"}, sandbox.Invalid, "image:"},
		{"LongImage", sandbox.CreateRequest{Image: strings.Repeat("x", maxImage+1)}, sandbox.Invalid, "image:"},
		{"Network", sandbox.CreateRequest{Network: sandbox.NetworkNone}, "", ""},
		{"NetworkAllowed", sandbox.CreateRequest{Network: "B.a.example:443"}, "", ""},
		{"NetworkThatIsNone", sandbox.CreateRequest{Network: "open"}, sandbox.Invalid, "network:"},
		{"NetworkNotAllowed", sandbox.CreateRequest{Network: "internet"}, sandbox.Invalid, "network:"},
		{"Env", sandbox.CreateRequest{Env: map[string]string{"a b": ""}}, sandbox.Invalid, "env:"},
		{"MostMemory", sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1 << 30}}, "", ""},
		{"TooMuchMemory", sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1<<30 + 1}}, sandbox.Invalid, "memory:"},
		{"TooLittleMemory", sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1}}, sandbox.Invalid, "memory:"},
		{"NegativeCPUs", sandbox.CreateRequest{Limits: sandbox.Limits{CPUs: -1}}, sandbox.Invalid, "cpus:"},
		{"TooLongALife", sandbox.CreateRequest{Limits: sandbox.Limits{Lifetime: 49 * time.Hour}}, sandbox.Invalid, "lifetime:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			limits, err := rules.CheckCreate(&c.req)
			if sandbox.KindOf(err) != c.kind || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("%v (%s), want %s %s", err, sandbox.KindOf(err), c.kind, c.want)
			}
			if err == nil && (limits.CPUs == 0 || limits.Processes == 0 || limits.Lifetime == 0 || c.req.Image == "" || c.req.Network == "") {
				t.Errorf("not complete: %+v, %+v", limits, c.req)
			}
		})
	}
	rules.Features.Network = false
	if _, err := rules.CheckNetwork("b.a.example"); !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("a network of a driver that has none: %v, hint %q", err, sandbox.HintOf(err))
	}
	big := sandbox.CreateRequest{Env: map[string]string{}}
	for i := range 20 {
		big.Env[fmt.Sprintf("V%d", i)] = strings.Repeat("x", maxText)
	}
	if _, err := rules.CheckCreate(&big); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("an environment of 2.5 MiB: %v", err)
	}
}
