package sudo

import (
	"fmt"
	"strings"
)

// An action is what a command line asks for.
type action int

const (
	run action = iota
	list
	showVersion
	showHelp
	nothing // there is no password to check or to forget
)

const usage = `usage: sudo [-EHins] [-u user] [-g group] [--preserve-env=list] [VAR=value] [command [argument ...]]
       sudo -l | -v | -k | -K | -V | -h
`

// parse reads the arguments of the command.
func parse(args []string) (action, *request, error) {
	req := &request{Terminal: -1}
	what, isSet := run, false
	set := func(a action) { what, isSet = a, true }
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' {
		arg := args[0]
		args = args[1:]
		if arg == "--" {
			break
		}
		names := arg[1:]
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			name, value, given := strings.Cut(long, "=")
			if name == "preserve-env" && given {
				req.Keep = append(req.Keep, strings.Split(value, ",")...)
				continue
			}
			letter, known := longOptions[name]
			if !known || given && !strings.Contains(withValue, letter) {
				return 0, nil, fmt.Errorf("unknown option --%s", long)
			}
			names = letter + value
		}
		for names != "" {
			letter := names[:1]
			names = names[1:]
			value := ""
			if strings.Contains(withValue, letter) {
				if value, names = names, ""; value == "" {
					if len(args) == 0 {
						return 0, nil, fmt.Errorf("option -%s needs a value", letter)
					}
					value, args = args[0], args[1:]
				}
			}
			switch letter {
			case "u":
				req.User = value
			case "g":
				req.Group = value
			case "E":
				req.KeepAll = true
			case "H":
				req.SetHome = true
			case "i":
				req.Login = true
			case "s":
				req.Shell = true
			case "n", "S", "B", "p": // about a password
			case "k":
				if !isSet {
					what = nothing // with a command, it changes nothing
				}
			case "K", "v":
				set(nothing)
			case "l":
				set(list)
			case "V":
				set(showVersion)
			case "h":
				set(showHelp)
			default:
				return 0, nil, fmt.Errorf("unknown option -%s", letter)
			}
		}
	}
	for len(args) > 0 {
		name, _, ok := strings.Cut(args[0], "=")
		if !ok || name == "" || strings.Contains(name, "/") {
			break
		}
		req.Set = append(req.Set, args[0])
		args = args[1:]
	}
	req.Args, req.List = args, what == list
	if req.Login && req.Shell {
		return 0, nil, fmt.Errorf("options -i and -s exclude each other")
	}
	if what == nothing && !isSet && (len(args) > 0 || req.Login || req.Shell) {
		what = run
	}
	if what == run && len(args) == 0 && !req.Login && !req.Shell {
		return 0, nil, fmt.Errorf("no command given")
	}
	return what, req, nil
}

// withValue are the options with a value.
const withValue = "ugp"

// longOptions are the letters of long options.
var longOptions = map[string]string{
	"user": "u", "group": "g", "preserve-env": "E", "set-home": "H", "login": "i", "shell": "s",
	"non-interactive": "n", "stdin": "S", "prompt": "p", "bell": "B", "reset-timestamp": "k",
	"remove-timestamp": "K", "validate": "v", "list": "l", "version": "V", "help": "h",
}
